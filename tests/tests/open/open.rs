//! Not compiled: each of these fails because of an open bug.

// keeper_death.rs: the agent is started at once by the daemon that rises, then again by `up`.
#[test]
fn an_agent_whose_variables_came_from_the_caller_comes_back_with_the_next_up() {
    let mut bench = bench();
    bench.set("A_SECRET", "value-of-the-caller");
    let events = bench.up(&[bench.agent("a", "env A_SECRET forever", "env_pass = [\"A_SECRET\"]")]);
    events.of("a", "run-ready");
    bench.kill_both();
    bench.defib(&["up", "--detach"]).good();
    bench.await_state("a", "running");
    bench.await_log("a", |log| log.matches("A_SECRET=value-of-the-caller\n").count() == 2);
}
