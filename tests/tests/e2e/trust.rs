//! Messages by TLS: they go to whom this machine trusts, and to nobody else.

use defib_e2e::{Authority, Bench, Mailbox, Ran, Receiver};

use crate::bench;

/// Everybody who can be told by TLS, on a machine that trusts only this authority.
struct Stage {
    bench: Bench,
    hook: Receiver,
    /// Encrypted from the first byte, and by `STARTTLS`.
    mail: [Mailbox; 2],
}

impl Stage {
    fn new(certified: &Authority, trusted: &Authority) -> Stage {
        let mut bench = bench();
        let file = bench.file("authorities.pem");
        std::fs::write(&file, &trusted.pem).unwrap();
        bench.set("SSL_CERT_FILE", &file);
        let hook = Receiver::certified(certified);
        let mail = [Mailbox::certified(certified), Mailbox::certified_if_asked(certified)];
        bench.up(&[
            bench.agent("a", "forever", ""),
            format!("[notify.hook]\nwebhook = \"{}\"\n", hook.url()),
            email("implicit", mail[0].port, "implicit"),
            email("starttls", mail[1].port, "starttls"),
        ]);
        Stage { bench, hook, mail }
    }

    /// Tries each channel, of which none may work, for this reason.
    fn refused_for(&self, why: &str) {
        let tried: Ran = self.bench.defib(&["notify", "test"]).bad(1);
        for (channel, way) in [("hook", "webhook"), ("implicit", "email"), ("starttls", "email")] {
            let said = format!("p/{channel}: NOT delivered by {way}: 127.0.0.1: {why}");
            assert!(tried.out.contains(&said), "{said}\n{tried:?}");
        }
        assert!(self.hook.all().is_empty());
        assert!(self.mail.iter().all(|mail| mail.all().is_empty()));
    }
}

fn email(name: &str, port: u16, tls: &str) -> String {
    let parties = "from = \"defib@example.org\", to = \"ops@example.org\"";
    let smtp = format!("host = \"127.0.0.1\", port = {port}, tls = \"{tls}\", {parties}");
    format!("[notify.{name}]\nemail = {{ smtp = {{ {smtp} }} }}\n")
}

#[test]
fn somebody_certified_by_whom_we_trust_is_told() {
    let authority = Authority::certifying("127.0.0.1");
    let Stage { bench, hook, mail } = Stage::new(&authority, &authority);
    bench.defib(&["notify", "test"]).good();
    let told = hook.find("a message", |all| Some(all.first()?.json()));
    assert_eq!(told["event"], "test");
    for mail in mail {
        let text = mail.find("a mail", |all| Some(all.first()?.text.clone()));
        assert!(text.contains("Subject: defib: test of p"), "{text}");
    }
}

#[test]
fn somebody_certified_by_whom_we_do_not_trust_is_told_nothing() {
    let [theirs, ours] = [(); 2].map(|()| Authority::certifying("127.0.0.1"));
    Stage::new(&theirs, &ours).refused_for(
        "nobody whom this machine trusts has signed its certificate; to trust others, start the \
         daemon where SSL_CERT_FILE names a file of theirs",
    );
}

#[test]
fn somebody_who_is_certified_to_be_another_is_told_nothing() {
    let authority = Authority::certifying("another.example");
    Stage::new(&authority, &authority).refused_for("its certificate is not good: ");
}

#[test]
fn a_mail_server_that_cannot_be_encrypted_gets_nothing() {
    let bench = bench();
    let mailbox = Mailbox::open();
    bench.up(&[bench.agent("a", "forever", ""), email("mail", mailbox.port, "starttls")]);
    let tried = bench.defib(&["notify", "test"]).bad(1);
    assert!(tried.out.contains("NOT delivered by email: 127.0.0.1: "), "{tried:?}");
    assert!(tried.out.contains("STARTTLS"), "{tried:?}");
    assert!(mailbox.all().is_empty());
}
