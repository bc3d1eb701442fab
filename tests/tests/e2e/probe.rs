//! Probes, against listeners that are really there.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use defib_e2e::{await_that, field};

use crate::bench;

const BY_PROBE: &str = "ready = \"probe\"\nrestart = \"never\"";

/// An HTTP server that answers with whatever code there is.
fn serve(code: Arc<AtomicU16>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 1024];
            let read = stream.read(&mut request).unwrap_or(0);
            let is_right = request[..read].starts_with(b"GET /health?deep=1 HTTP/1.1\r\n");
            let code = if is_right { code.load(Ordering::SeqCst) } else { 404 };
            let _ = write!(stream, "HTTP/1.1 {code} X\r\ncontent-length: 2\r\n\r\nok");
        }
    });
    port
}

#[test]
fn an_agent_is_ready_by_its_first_good_http_answer_and_dies_of_bad_ones() {
    let bench = bench();
    let code = Arc::new(AtomicU16::new(503));
    let port = serve(code.clone());
    let probe = format!(
        "probe = {{ http = \"http://127.0.0.1:{port}/health?deep=1\", every = \"100ms\", \
         timeout = \"30s\", failures = 3 }}"
    );
    let begun = bench.file("begun");
    let script = format!("touch {begun} forever");
    bench.declare(&[bench.agent("a", &script, &format!("{probe}\n{BY_PROBE}"))]);
    std::thread::scope(|scope| {
        scope.spawn(|| bench.defib(&["up", "--detach"]).good());
        await_that("a run", || std::path::Path::new(&begun).exists());
        // However often it is asked before it is ready, that is no death.
        bench.await_status("a", |status| status["uptime_s"].as_f64().is_some_and(|age| age > 1.0));
        assert_eq!(bench.status("a")["state"], "starting");
        code.store(204, Ordering::SeqCst);
    });
    let events = bench.events();
    events.of("a", "run-ready");
    code.store(500, Ordering::SeqCst);
    let died = events.of("a", "run-died");
    assert_eq!(died["class"], "timeout");
    let evidence = died["evidence"].as_str().unwrap();
    assert!(evidence.contains("failed 3 in a row: it answered 500"), "{evidence}");
}

#[test]
fn an_agent_whose_port_takes_no_connections_any_more_is_ended() {
    let bench = bench();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let probe = format!(
        "probe = {{ tcp = \"{address}\", every = \"100ms\", timeout = \"30s\", failures = 2 }}"
    );
    let settings = format!("{probe}\n{BY_PROBE}");
    let events = bench.up(&[bench.agent("a", "forever", &settings)]);
    events.of("a", "run-ready");
    drop(listener);
    let died = events.of("a", "run-died");
    assert_eq!(died["class"], "timeout");
    assert!(died["evidence"].as_str().unwrap().contains("refused"), "{died}");
}

#[test]
fn a_command_is_asked_in_the_agent_s_folder_and_environment_and_again_under_the_next_daemon() {
    let bench = bench();
    let well = bench.file("well");
    std::fs::write(&well, "").unwrap();
    let settings = "probe = { exec = [\"sh\", \"-c\", \"test $DEFIB_AGENT$WORD = a7 && test -e well\"], \
         every = \"100ms\", timeout = \"30s\", failures = 2 }\nenv = { WORD = \"7\" }";
    let settings = format!("{settings}\n{BY_PROBE}");
    let events = bench.up(&[bench.agent("a", "forever", &settings)]);
    events.of("a", "run-ready");
    bench.kill_daemon();
    assert_eq!(field(&bench.await_state("a", "running"), "run"), 1);
    std::fs::remove_file(well).unwrap();
    let died = events.of("a", "run-died");
    assert_eq!(died["class"], "timeout");
    assert!(died["evidence"].as_str().unwrap().ends_with("it exited with 1"), "{died}");
}

#[test]
fn a_probe_by_https_is_refused_with_what_to_do_instead() {
    let bench = bench();
    bench.declare(&[bench.agent("a", "forever", "probe = { http = \"https://localhost/\" }")]);
    let refused = bench.defib(&["check"]);
    assert_eq!(refused.code, 3, "{refused:?}");
    let told = format!("{}{}", refused.out, refused.err);
    assert!(told.contains("a probe by `https` is not supported"), "{told}");
    assert!(told.contains("curl"), "{told}");
}
