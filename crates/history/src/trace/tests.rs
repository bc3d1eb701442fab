//! Samples of every language, prose that is none, and arbitrary bytes.

use proptest::prelude::*;

use super::*;

/// An output, and the first and the last line of the trace in it.
struct Sample {
    what: &'static str,
    output: &'static str,
    first: &'static str,
    last: &'static str,
}

const SAMPLES: &[Sample] = &[
    Sample {
        what: "python",
        output: "starting\nTraceback (most recent call last):\n  File \"/app/main.py\", line 12, in <module>\n    main()\n    ~~~~^^\n  File \"/app/main.py\", line 8, in main\n    return d['k']\nKeyError: 'k'\n",
        first: "Traceback (most recent call last):",
        last: "KeyError: 'k'",
    },
    Sample {
        what: "python, a chain",
        output: "Traceback (most recent call last):\n  File \"a.py\", line 2, in f\n    1/0\nZeroDivisionError: division by zero\n\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n  File \"a.py\", line 4, in g\n    raise X from None\nrequests.exceptions.ConnectionError: HTTPSConnectionPool(host='x', port=443)\n\nThe above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n  File \"a.py\", line 9, in <module>\n    g()\nRuntimeError: gave up\nbye\n",
        first: "Traceback (most recent call last):",
        last: "RuntimeError: gave up",
    },
    Sample {
        what: "python, two apart: the last",
        output: "Traceback (most recent call last):\n  File \"a.py\", line 2, in f\nValueError: first\nretrying\nTraceback (most recent call last):\n  File \"b.py\", line 3, in g\nsocket.timeout: timed out\n",
        first: "Traceback (most recent call last):",
        last: "socket.timeout: timed out",
    },
    Sample {
        what: "python, killed while it printed",
        output: "Traceback (most recent call last):\n  File \"a.py\", line 2, in f\n    work(",
        first: "Traceback (most recent call last):",
        last: "    work(",
    },
    Sample {
        what: "python, a group",
        output: "  + Exception Group Traceback (most recent call last):\n  |   File \"g.py\", line 3, in <module>\n  |     raise ExceptionGroup(\"eg\", [ValueError(1)])\n  | ExceptionGroup: eg (1 sub-exception)\n  +-+---------------- 1 ----------------\n    | ValueError: 1\n    +------------------------------------\n",
        first: "  + Exception Group Traceback (most recent call last):",
        last: "    +------------------------------------",
    },
    Sample {
        what: "python, a syntax error",
        output: "  File \"/app/x.py\", line 1\n    def f(:\n          ^\nSyntaxError: invalid syntax\n",
        first: "  File \"/app/x.py\", line 1",
        last: "SyntaxError: invalid syntax",
    },
    Sample {
        what: "rust, a message and a note",
        output: "listening\n\nthread 'main' (4242) panicked at src/main.rs:4:10:\ncalled `Result::unwrap()` on an `Err` value: Os { code: 2 }\nnote: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n",
        first: "thread 'main' (4242) panicked at src/main.rs:4:10:",
        last: "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace",
    },
    Sample {
        what: "rust, a backtrace",
        output: "thread 'tokio-runtime-worker' panicked at src/x.rs:1:1:\nleft\nright\nstack backtrace:\n   0: rust_begin_unwind\n             at /rustc/abc/library/std/src/panicking.rs:665:5\n   1: core::panicking::panic_fmt\n   2: app::main\n             at ./src/x.rs:1:1\nnote: Some details are omitted, run with `RUST_BACKTRACE=full` for a verbose backtrace.\nexit\n",
        first: "thread 'tokio-runtime-worker' panicked at src/x.rs:1:1:",
        last: "note: Some details are omitted, run with `RUST_BACKTRACE=full` for a verbose backtrace.",
    },
    Sample {
        what: "rust, before 1.73",
        output: "thread 'main' panicked at 'explicit panic', src/main.rs:2:5\nafter\n",
        first: "thread 'main' panicked at 'explicit panic', src/main.rs:2:5",
        last: "thread 'main' panicked at 'explicit panic', src/main.rs:2:5",
    },
    Sample {
        what: "node, uncaught",
        output: "ready\n/app/index.js:3\n    throw new TypeError('bad');\n    ^\n\nTypeError: bad\n    at Object.<anonymous> (/app/index.js:3:11)\n    at Module._compile (node:internal/modules/cjs/loader:1554:14)\n    at async run (file:///app/m.mjs:1:1)\n    at node:internal/main/run_main_module:36:49\n\nNode.js v22.14.0\n",
        first: "/app/index.js:3",
        last: "    at node:internal/main/run_main_module:36:49",
    },
    Sample {
        what: "node, a module that is not there",
        output: "node:internal/modules/cjs/loader:1228\n  throw err;\n  ^\n\nError: Cannot find module 'left-pad'\nRequire stack:\n- /app/index.js\n    at Function._resolveFilename (node:internal/modules/cjs/loader:1225:15)\n    at require (node:internal/modules/helpers:135:16) {\n  code: 'MODULE_NOT_FOUND',\n  requireStack: [ '/app/index.js' ]\n}\n\nNode.js v22.14.0\n",
        first: "node:internal/modules/cjs/loader:1228",
        last: "}",
    },
    Sample {
        what: "node, in its prompt",
        output: "Uncaught ReferenceError: x is not defined\n    at REPL1:1:1\n",
        first: "Uncaught ReferenceError: x is not defined",
        last: "    at REPL1:1:1",
    },
    Sample {
        what: "node, with its cause",
        output: "Error: outer\n    at f (/a.js:1:1) {\n  [cause]: Error: inner\n      at g (/a.js:2:2)\n}\nok\n",
        first: "Error: outer",
        last: "      at g (/a.js:2:2)",
    },
    Sample {
        what: "go, a panic",
        output: "2026/01/01 up\npanic: runtime error: invalid memory address or nil pointer dereference\n[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x47]\n\ngoroutine 1 [running]:\nmain.(*Server).run(...)\n\t/app/main.go:9\nmain.main()\n\t/app/main.go:5 +0x1d\n\ngoroutine 7 [chan receive, 2 minutes]:\nmain.work(0xc000010000)\n\t/app/main.go:20 +0x88\ncreated by main.main in goroutine 1\n\t/app/main.go:4 +0x11\nexit status 2\n",
        first: "panic: runtime error: invalid memory address or nil pointer dereference",
        last: "exit status 2",
    },
    Sample {
        what: "go, a fatal error",
        output: "fatal error: all goroutines are asleep - deadlock!\n\ngoroutine 1 [chan receive]:\nmain.main()\n\t/app/main.go:4 +0x2c\n",
        first: "fatal error: all goroutines are asleep - deadlock!",
        last: "\t/app/main.go:4 +0x2c",
    },
    Sample {
        what: "java",
        output: "INFO up\nException in thread \"main\" java.lang.IllegalStateException: no\n\tat com.acme.App.run(App.java:12)\n\tat com.acme.App.main(App.java:5) ~[app.jar:1.0]\nCaused by: java.io.IOException: disk\n\tat com.acme.Store.read(Store.java:44)\n\t... 2 more\nINFO down\n",
        first: "Exception in thread \"main\" java.lang.IllegalStateException: no",
        last: "\t... 2 more",
    },
    Sample {
        what: "java, printed by hand",
        output: "java.lang.NullPointerException\n\tat com.acme.App.main(App.java:5)\n",
        first: "java.lang.NullPointerException",
        last: "\tat com.acme.App.main(App.java:5)",
    },
];

#[test]
fn the_trace_of_every_language_is_found_from_its_first_to_its_last_line() {
    for sample in SAMPLES {
        let found = find_trace(sample.output.as_bytes()).unwrap_or_default();
        assert_eq!(found.lines().next(), Some(sample.first), "{}:\n{found}", sample.what);
        assert_eq!(found.lines().last(), Some(sample.last), "{}:\n{found}", sample.what);
    }
}

#[test]
fn a_chain_of_exceptions_is_one_trace() {
    let chain = find_trace(SAMPLES[1].output.as_bytes()).unwrap_or_default();
    for part in
        ["ZeroDivisionError", "During handling", "ConnectionError", "direct cause", "gave up"]
    {
        assert!(chain.contains(part), "{part} is not in\n{chain}");
    }
    assert!(!chain.contains("bye"));
}

#[test]
fn the_last_of_several_traces_counts_whatever_its_language() {
    for first in SAMPLES {
        for second in SAMPLES {
            let output = format!("{}\n\n\n\n\n\n{}", first.output, second.output);
            let found = find_trace(output.as_bytes()).unwrap_or_default();
            let message = format!("{} then {}:\n{found}", first.what, second.what);
            assert_eq!(found.lines().next(), Some(second.first), "{message}");
            assert_eq!(found.lines().last(), Some(second.last), "{message}");
        }
    }
}

#[test]
fn line_ends_colours_and_broken_characters_hide_no_trace() {
    for sample in SAMPLES {
        let crlf = sample.output.replace('\n', "\r\n");
        let coloured = sample.output.replace('\n', "\n\x1b[31m");
        let mut broken = b"\xff\xfe\xc3\n".to_vec();
        broken.extend(sample.output.as_bytes());
        for output in [crlf.as_bytes(), coloured.as_bytes(), &broken] {
            let found = find_trace(output).unwrap_or_default();
            assert_eq!(found.lines().next(), Some(sample.first), "{}", sample.what);
            assert_eq!(found.lines().last(), Some(sample.last), "{}", sample.what);
        }
    }
}

#[test]
fn lines_of_others_between_those_of_a_trace_are_left_out() {
    for (output, kept) in [
        (
            "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\nINFO: heartbeat\n[worker] tick\n  File \"b.py\", line 2, in g\nValueError: x\n",
            "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n  File \"b.py\", line 2, in g\nValueError: x",
        ),
        (
            "Error: x\n    at f (/a.js:1:1)\nGET /health 200\n    at g (/a.js:2:2)\n",
            "Error: x\n    at f (/a.js:1:1)\n    at g (/a.js:2:2)",
        ),
        (
            "panic: x\n\ngoroutine 1 [running]:\nmain.f()\n2026/01/01 GET /\n\t/a.go:1 +0x1\n",
            "panic: x\n\ngoroutine 1 [running]:\nmain.f()\n\t/a.go:1 +0x1",
        ),
    ] {
        assert_eq!(find_trace(output.as_bytes()).as_deref(), Some(kept));
    }
}

#[test]
fn prose_about_traces_is_none() {
    for prose in [
        "",
        "\n\n\n",
        "I saw a Traceback (most recent call last): in the log, and fixed it.\n",
        "Traceback (most recent call last):\nis what Python prints first.\n",
        "The thread 'main' did not panic.\n",
        "panic: that is what Go would say, then a goroutine dump.\n",
        "fatal error: stdio.h: No such file or directory\ncompilation terminated.\n",
        "Error: something failed\nbut there is no frame\n",
        "Error: meeting moved\nat noon (in the hall)\n",
        "We look at the road (and wait):\n    at dawn\n",
        "  File \"x.py\", line 3 is where I would look\nOK: fine\n",
        "Exception in thread handling is hard\n",
    ] {
        assert_eq!(find_trace(prose.as_bytes()), None, "{prose}");
    }
}

#[test]
fn a_long_trace_keeps_its_beginning_and_its_end() {
    let frames = "  File \"deep-é.py\", line 7, in f\n".repeat(1500);
    let output = format!("Traceback (most recent call last):\n{frames}RecursionError: too deep\n");
    assert!(output.len() < TAIL_MAX);
    let found = find_trace(output.as_bytes()).unwrap_or_default();
    assert!(found.len() <= TRACE_MAX);
    assert!(found.starts_with("Traceback"), "{}", &found[..80]);
    assert!(found.contains("\n[…]\n") && found.ends_with("\nRecursionError: too deep"));
}

#[test]
fn no_output_takes_long() {
    for piece in [
        "Traceback (most recent call last):\n",
        "Traceback (most recent call last):\n  File \"a\", line 1\n",
        "  File \"a\", line 1\n",
        "Error: x\n",
        "Error: x\n    at f (a:1:1)\n",
        "panic: x\n",
        "goroutine 1 [x]:\n",
        "thread 'x' panicked at x:\n",
        "\x1b]",
        "\x1b[",
        "\n",
        " ",
    ] {
        let output = piece.repeat(TAIL_MAX / piece.len());
        let began = std::time::Instant::now();
        let _ = find_trace(output.as_bytes());
        assert!(began.elapsed() < std::time::Duration::from_secs(1), "{piece:?}");
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic_and_stay_bounded(bytes in proptest::collection::vec(any::<u8>(), 0..4096)) {
        if let Some(found) = find_trace(&bytes) {
            prop_assert!(found.len() <= TRACE_MAX);
        }
    }

    #[test]
    fn samples_torn_and_shuffled_never_panic(
        picks in proptest::collection::vec((0..SAMPLES.len(), 0..40usize), 0..60),
    ) {
        let lines: Vec<&str> = picks
            .iter()
            .filter_map(|(sample, line)| SAMPLES[*sample].output.lines().nth(*line))
            .collect();
        if let Some(found) = find_trace(lines.join("\n").as_bytes()) {
            prop_assert!(found.len() <= TRACE_MAX && !found.is_empty());
        }
    }
}
