//! Stalls of several processes.

use super::*;

#[test]
fn of_several_processes_the_first_one_tells_it_once_and_all_get_the_same_error() {
    let said = in_processes(3, |world| {
        let process = world.process();
        let (builder, open) = held(3, 1, true);
        let (builder, stalls) = heard(builder);
        let builder = builder.stall_limit(Some(4 * SOON)).world(world);
        let mut pipeline = builder.launch().expect("it starts");
        pipeline.step().expect("the gate is open");
        let error = pipeline.step().expect_err("the gate is shut").to_string();
        drop(pipeline);
        drop(open);
        (process, stalls.try_iter().collect::<Vec<_>>(), error)
    });
    let told: Vec<_> = said.iter().map(|(_, stalls, _)| stalls.len()).collect();
    assert_eq!(told, [1, 0, 0], "{said:?}");
    assert_eq!(
        timeless(&said[0].1[0].to_string()),
        "rank 1 (process 1) has been in 1F0 (stage 1, layer h.1) for N s; rank 0 (process 0) has waited for \
         rank 1's gradient of micro-batch 0 for N s, in 0B0 (stage 0, layer h.0); rank 2 (process 2) has \
         waited for rank 1's activation of micro-batch 0 for N s, in 2F0 (stage 2, layer h.2)"
    );
    let own = &said[1].2;
    assert!(own.starts_with("a stall of 2 s: rank 1 (process 1) has been in 1F0"), "{own}");
    has(&own, &["rank 0 (process 0) has waited for rank 1's gradient"]);
    for process in [0, 2] {
        assert_eq!(said[process].2, format!("process 1: {own}"));
    }
}

#[test]
fn a_process_that_does_not_come_to_the_launch_is_told() {
    let (open, gate) = gate();
    let said = in_processes(2, |world| {
        let (builder, stalls) = heard(pipeline(gated(2, |_, _| {})));
        if world.process() == 1 {
            wait_at(&gate);
            return builder.world(world).launch().map(|_| String::new());
        }
        // The other process goes on once this was told.
        thread::scope(|scope| {
            let launch = scope.spawn(|| builder.world(world).launch());
            let told = next(&stalls).to_string();
            open.send(()).expect("it waits");
            launch.join().expect("no panic").map(|_| told)
        })
    });
    let told = said[0].as_ref().expect("it is launched");
    assert_eq!(
        timeless(told),
        "process 1 (rank 1) has not launched its pipeline in N s: it may still open its data, or it is \
         stopped"
    );
}

#[test]
fn a_process_whose_program_makes_no_call_is_told() {
    let (open, gate) = gate();
    let said = in_processes(2, |world| {
        let process = world.process();
        let (builder, stalls) = heard(pipeline(gated(2, |_, _| {})));
        let mut pipeline = builder.world(world).launch().expect("it starts");
        pipeline.step().expect("both make it");
        if process == 1 {
            wait_at(&gate);
        }
        if process == 1 {
            return pipeline.step().map(|_| String::new());
        }
        // The other process goes on once this was told.
        thread::scope(|scope| {
            let step = scope.spawn(|| pipeline.step());
            let told = next(&stalls).to_string();
            open.send(()).expect("it waits");
            step.join().expect("no panic").map(|_| told)
        })
    });
    let told = said[0].as_ref().expect("the step goes on");
    assert!(
        timeless(told).starts_with(
            "process 1 (rank 1) has been in no call of the pipeline for N s: its program does something \
             else; rank 0 (process 0) has waited for rank 1's gradient of micro-batch 0"
        ),
        "{told}"
    );
}
