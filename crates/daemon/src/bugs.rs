//! What becomes of the daemon when it meets a bug of its own: it ends, and the keeper brings it back.
//!
//! A panic unwinds one thread only. A daemon without its scribe, its herald or the thread that stores
//! what is wanted would seem to live, and hang whoever asks for a stop; the next daemon takes over from
//! the keeper within a moment, and no agent notices. So a panic aborts, but where somebody waits who is
//! told of it by the end of a connection or of a task: a request, and what is worked out aside for
//! one. Those are also where the world's words come in, and no client may end the daemon by them.

use std::panic;
use std::thread;

/// The threads that work things out for whoever waits for them in the runtime of the API.
pub(crate) const ASIDE: &str = "aside";

tokio::task_local! {
    static CONTAINED: ();
}

/// From now on a panic of this process ends it, unless it is contained.
pub(crate) fn end_the_process() {
    // It writes to standard error and does not mind where there is no room for that.
    let say = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        say(panic);
        let is_aside = thread::current().name() == Some(ASIDE);
        if !is_aside && CONTAINED.try_with(|()| ()).is_err() {
            std::process::abort();
        }
    }));
}

/// Something done for one client: a panic in it costs that client its connection, and nobody else.
pub(crate) async fn contained<T>(work: impl Future<Output = T>) -> T {
    CONTAINED.scope((), work).await
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, ExitStatus, Stdio};

    /// By this the test program knows that it is to meet a bug, and where.
    const WHERE: &str = "DEFIB_TEST_BUG";
    /// What it ends by when it outlived it.
    const OUTLIVED: i32 = 42;

    fn meets_a_bug(place: &str) {
        end_the_process();
        let runtime = tokio::runtime::Builder::new_current_thread().thread_name(ASIDE).build();
        let runtime = runtime.unwrap();
        let panicked = match place {
            "thread" => {
                let helper = thread::Builder::new().name("intents".to_owned());
                helper.spawn(|| panic!("a bug")).unwrap().join().is_err()
            }
            "task" => {
                runtime.block_on(async { tokio::spawn(async { panic!("a bug") }).await.is_err() })
            }
            "request" => runtime.block_on(async {
                let request = contained(async {
                    tokio::task::yield_now().await;
                    panic!("a bug")
                });
                tokio::spawn(request).await.is_err()
            }),
            "aside" => runtime
                .block_on(async { tokio::task::spawn_blocking(|| panic!("a bug")).await.is_err() }),
            other => unreachable!("{other}"),
        };
        assert!(panicked);
        std::process::exit(OUTLIVED);
    }

    /// This test program again, with no more room on its standard error than `/dev/full` has.
    fn after_a_bug_in(place: &str) -> ExitStatus {
        let name = thread::current().name().unwrap().to_owned();
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", &name])
            .env(WHERE, place)
            .stdout(Stdio::null())
            .stderr(full)
            .status()
            .unwrap()
    }

    #[test]
    fn a_bug_ends_the_daemon_unless_one_client_alone_met_it() {
        if let Ok(place) = std::env::var(WHERE) {
            return meets_a_bug(&place);
        }
        let abort = Some(defib_core::Signal::parse("ABRT").unwrap().0);
        for place in ["thread", "task"] {
            assert_eq!(after_a_bug_in(place).signal(), abort, "{place}");
        }
        for place in ["request", "aside"] {
            assert_eq!(after_a_bug_in(place).code(), Some(OUTLIVED), "{place}");
        }
    }
}
