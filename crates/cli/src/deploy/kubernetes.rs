//! A manifest for Kubernetes: the file, a volume for the home, and one pod.
//!
//! The pod belongs to a `StatefulSet`: Kubernetes starts its successor only when it knows that the pod has ended,
//! also if the node is cut off. A Deployment does not wait for a node that is cut off.

use defib_config::Config;
use defib_config::config::Listen;

use super::{Setting, dns_name, grace, seconds};

/// What keeps the pod running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Workload {
    StatefulSet,
    Deployment,
}

impl Workload {
    /// The beginning of its manifest, up to the selector; with a Service if it needs one.
    fn head(self, project: &str) -> String {
        let meta = format!(
            "metadata:\n  name: {project}-defib\n  labels: {{ app.kubernetes.io/name: {project}-defib }}\n"
        );
        match self {
            Workload::StatefulSet => format!(
                "apiVersion: v1\n\
                 kind: Service\n\
                 {meta}\
                 spec:\n  clusterIP: None\n  selector: {{ app.kubernetes.io/name: {project}-defib }}\n\
                 ---\n\
                 apiVersion: apps/v1\n\
                 kind: StatefulSet\n\
                 {meta}\
                 spec:\n\
                 \x20 # Never two pods: if the node is cut off, the next pod starts when the node is back or was removed.\n\
                 \x20 replicas: 1\n\
                 \x20 serviceName: {project}-defib\n"
            ),
            Workload::Deployment => format!(
                "apiVersion: apps/v1\n\
                 kind: Deployment\n\
                 {meta}\
                 spec:\n\
                 \x20 # The old pod ends before the new one starts, except if its node is cut off: after about five minutes\n\
                 \x20 # Kubernetes may start a second pod, and agents may run twice. A StatefulSet does not do that.\n\
                 \x20 replicas: 1\n\
                 \x20 strategy:\n    type: Recreate\n"
            ),
        }
    }
}

/// The manifest. `name` is the file's own, `text` what is in it.
pub(crate) fn manifest(
    config: &Config,
    setting: &Setting<'_>,
    (name, text): (&str, &str),
    image: &str,
    workload: Workload,
) -> String {
    let project = dns_name(config.project.as_str());
    let grace = seconds(grace(config));
    let image = quoted(image);
    let content = block(text);
    let key = quoted(name);
    let path = quoted(&format!("/etc/defib/{name}"));
    let probe = probe(config);
    let env = environment(setting, &project);
    let head = workload.head(&project);
    let arguments = setting.arguments.iter();
    let arguments: String = arguments.map(|word| format!(", {}", quoted(word))).collect();
    format!(
        "# The image needs `defib`, a shell for `shell = true`, and what the agents run. Relative paths in the file\n\
         # start at /etc/defib, which cannot be written to: give each agent an absolute `cwd`. The first process is\n\
         # the keeper (so no shareProcessNamespace): agents that were up when the pod stopped come back with the next.\n\
         apiVersion: v1\n\
         kind: ConfigMap\n\
         metadata:\n  name: {project}-defib\n\
         data:\n  {key}: {content}\n\
         ---\n\
         apiVersion: v1\n\
         kind: PersistentVolumeClaim\n\
         metadata:\n  name: {project}-defib\n\
         # One pod alone may use it (Kubernetes 1.29 with a CSI driver; else write ReadWriteOnce).\n\
         spec:\n  accessModes: [ReadWriteOncePod]\n  resources:\n    requests:\n      storage: 1Gi\n\
         ---\n\
         {head}\
         \x20 selector:\n    matchLabels: {{ app.kubernetes.io/name: {project}-defib }}\n\
         \x20 template:\n\
         \x20   metadata:\n      labels: {{ app.kubernetes.io/name: {project}-defib }}\n\
         \x20   spec:\n\
         \x20     # The longest chain of stops, and some time to write it down.\n\
         \x20     terminationGracePeriodSeconds: {grace}\n\
         \x20     containers:\n\
         \x20       - name: defib\n\
         \x20         image: {image}\n\
         \x20         command: [defib, up, --home, /var/lib/defib, --file, {path}{arguments}]\n\
         {env}{probe}\
         \x20         volumeMounts:\n\
         \x20           - {{ name: home, mountPath: /var/lib/defib }}\n\
         \x20           - {{ name: config, mountPath: /etc/defib, readOnly: true }}\n\
         \x20     volumes:\n\
         \x20       - name: home\n          persistentVolumeClaim: {{ claimName: {project}-defib }}\n\
         \x20       - name: config\n          configMap: {{ name: {project}-defib }}\n"
    )
}

/// The daemon's own word, over the web where it listens beyond the pod, else over its socket.
fn probe(config: &Config) -> String {
    let asked = match config.server.listen {
        Some(Listen::At(address)) if !address.ip().is_loopback() => {
            let scheme = if config.server.tls.is_some() { "HTTPS" } else { "HTTP" };
            format!("httpGet: {{ path: /healthz, port: {}, scheme: {scheme} }}", address.port())
        }
        Some(Listen::At(_) | Listen::Off) | None => {
            "exec: { command: [defib, --home, /var/lib/defib, status] }".to_owned()
        }
    };
    ["startupProbe", "livenessProbe", "readinessProbe"]
        .map(|name| {
            format!(
                "          {name}:\n            {asked}\n            periodSeconds: 10\n            \
                 timeoutSeconds: 5\n            failureThreshold: 6\n"
            )
        })
        .concat()
}

/// What the agents have of their caller's comes from a secret, but for what changes how the file is
/// read. Names that only a pattern gives are not known: those are for a person to add.
fn environment(setting: &Setting<'_>, project: &str) -> String {
    let mut env = String::new();
    for (name, value) in &setting.set {
        env += &format!("            - {{ name: {name}, value: {} }}\n", quoted(value));
    }
    let needed = setting.needed.iter().map(|name| (name, ""));
    for (name, optional) in needed.chain(setting.optional.iter().map(|n| (n, ", optional: true"))) {
        let name = quoted(name);
        env += &format!(
            "            - name: {name}\n              valueFrom:\n                secretKeyRef: \
             {{ name: {project}-defib, key: {name}{optional} }}\n"
        );
    }
    let comment = |pattern: &&str| {
        format!("            # `env_pass` has {}: add each such variable here.\n", quoted(pattern))
    };
    let comments: String = setting.patterns.iter().map(comment).collect();
    if env.is_empty() {
        return comments;
    }
    format!("          env:\n{env}{comments}")
}

/// Every JSON string is one of YAML's.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A text as it stands, where YAML lets it, two levels in.
fn block(text: &str) -> String {
    let odd = |c: char| c.is_control() && c != '\n' || c == '\u{feff}';
    if text.contains(odd) || text.trim().is_empty() {
        return quoted(text);
    }
    let line = |line: &str| if line.is_empty() { String::new() } else { format!("    {line}") };
    let lines: Vec<String> = text.trim_end_matches('\n').split('\n').map(line).collect();
    format!("|2\n{}", lines.join("\n"))
}
