//! Schedules as data: who does what when, as text and as pictures.

use pipewright::Error;

use super::*;

fn message<T: std::fmt::Debug, E: Into<Error>>(result: Result<T, E>) -> String {
    match result.map_err(Into::into) {
        Err(Error::Schedule(error)) => error.to_string(),
        Err(Error::Plan(error)) => error.to_string(),
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[test]
fn gpipe_does_all_forwards_then_all_backwards() {
    let timetable = lines(
        "rank 0 | F0 F1 F2 F3 .. .. .. .. .. .. B0 B1 B2 B3
         rank 1 | .. F0 F1 F2 F3 .. .. .. .. B0 B1 B2 B3
         rank 2 | .. .. F0 F1 F2 F3 .. .. B0 B1 B2 B3
         rank 3 | .. .. .. F0 F1 F2 F3 B0 B1 B2 B3",
    );
    assert_eq!(Schedule::gpipe(4, 4).unwrap().timetable(), timetable);
}

#[test]
fn one_f_one_b_alternates_after_a_warm_up() {
    let timetable = lines(
        "rank 0 | F0 F1 F2 F3 .. .. .. B0 F4 B1 F5 B2 .. B3 .. B4 .. B5
         rank 1 | .. F0 F1 F2 .. .. B0 F3 B1 F4 B2 F5 B3 .. B4 .. B5
         rank 2 | .. .. F0 F1 .. B0 F2 B1 F3 B2 F4 B3 F5 B4 .. B5
         rank 3 | .. .. .. F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5",
    );
    assert_eq!(Schedule::one_f_one_b(4, 6).unwrap().timetable(), timetable);
}

#[test]
fn fewer_micro_batches_than_ranks_work() {
    let timetable = lines(
        "rank 0 | F0 F1 .. .. .. .. .. B0 .. B1
         rank 1 | .. F0 F1 .. .. .. B0 .. B1
         rank 2 | .. .. F0 F1 .. B0 .. B1
         rank 3 | .. .. .. F0 B0 F1 B1",
    );
    assert_eq!(Schedule::one_f_one_b(4, 2).unwrap().timetable(), timetable);
    assert_eq!(Schedule::gpipe(4, 1).unwrap().csv(), "0F0,0B0\n1F0,1B0\n2F0,2B0\n3F0,3B0\n");
}

#[test]
fn one_rank_sends_nothing() {
    let schedule = Schedule::one_f_one_b(1, 2).unwrap();
    assert_eq!(schedule.csv_with_comms(), "0F0,0B0,0F1,0B1\n");
    assert_eq!(schedule.actions(Rank(0)).last(), Some(&Action::Step(StageId(0))));
    assert_eq!(schedule.actions(Rank(1)), []);
}

#[test]
fn a_timetable_shows_stages_where_ranks_have_several() {
    let csv = "0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n";
    let schedule = read(csv);
    let timetable = "rank 0 | 0F0 ... ... 3F0 3B0 ... ... 0B0\nrank 1 | ... 1F0 2F0 ... ... 2B0 1B0\n";
    assert_eq!(schedule.timetable(), timetable);
}

#[test]
fn lowering_equals_pytorch_for_gpipe() {
    // PyTorch 2.15, ScheduleGPipe, 2 ranks, 4 micro-batches, without its gradient reduction
    let pytorch = "\
0F0,0SEND_F0,0F1,0SEND_F1,0F2,0SEND_F2,0F3,0SEND_F3,0RECV_B0,0B0,0RECV_B1,0B1,0RECV_B2,0B2,0RECV_B3,0B3
1RECV_F0,1F0,1RECV_F1,1F1,1RECV_F2,1F2,1RECV_F3,1F3,1B0,1SEND_B0,1B1,1SEND_B1,1B2,1SEND_B2,1B3,1SEND_B3
";
    assert_eq!(Schedule::gpipe(2, 4).unwrap().csv_with_comms(), pytorch);
}

#[test]
fn lowering_adds_no_transfer_between_stages_of_one_rank() {
    let csv = "0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n";
    let schedule = read(csv);
    let comms = "\
0F0,0SEND_F0,3RECV_F0,3F0,3B0,3SEND_B0,0RECV_B0,0B0
1RECV_F0,1F0,2F0,2SEND_F0,2RECV_B0,2B0,1B0,1SEND_B0
";
    assert_eq!(schedule.csv_with_comms(), comms);
    let steps: Vec<_> = schedule.actions(Rank(0)).iter().rev().take(2).map(Action::to_string).collect();
    assert_eq!(steps, ["3STEP", "0STEP"]);
}

#[test]
fn the_ends_of_a_transfer_know_each_other() {
    let schedule = Schedule::one_f_one_b(3, 2).unwrap();
    let pairs = [("0SEND_F1", "1RECV_F1", 0, 1), ("2SEND_B0", "1RECV_B0", 2, 1)];
    for (send, recv, from, to) in pairs {
        let (send, recv): (Action, Action) = (send.parse().unwrap(), recv.parse().unwrap());
        assert_eq!((send.partner(), recv.partner()), (Some(recv), Some(send)));
        assert_eq!((schedule.peer(send), schedule.peer(recv)), (Some(Rank(to)), Some(Rank(from))));
    }
    assert_eq!(schedule.peer(Action::Send(Flow::Activation, Cell::new(2, 0))), None);
    assert_eq!(schedule.peer(Action::Recv(Flow::Activation, Cell::new(0, 0))), None);
    assert_eq!(schedule.peer(Action::Compute(Pass::Forward, Cell::new(0, 0))), None);
}

#[test]
fn zero_ranks_or_micro_batches_are_refused() {
    for name in Schedule::names() {
        for (ranks, micro_batches) in [(0, 4), (4, 0), (0, 0)] {
            assert_eq!(
                message(Schedule::named(name, ranks, micro_batches)),
                format!(
                    "schedule {name} needs at least 1 rank and 1 micro-batch; it was given {ranks} ranks and \
                     {micro_batches} micro-batches"
                )
            );
        }
    }
}

#[test]
fn sizes_beyond_memory_are_refused_before_anything_is_made() {
    let text = message(Schedule::gpipe(u32::MAX, u32::MAX));
    assert!(text.ends_with("is too large: their product may be 8,388,608 (2^23) at most"), "{text}");
    let text = message(Placement::looped(u32::MAX, 2));
    assert_eq!(text, "4294967295 ranks of 2 chunks are more than 2^23 stages");
}

#[test]
fn an_unknown_name_is_refused_with_the_nearest() {
    let known = Schedule::names().collect::<Vec<_>>().join(", ");
    for (name, meant) in [("1F1B", ", did you mean 1f1b?"), ("g-pipe", ", did you mean gpipe?"), ("xxx", "")]
    {
        assert_eq!(
            message(Schedule::named(name, 2, 2)),
            format!("there is no schedule {name:?}{meant} (known: {known})")
        );
    }
}

#[test]
fn placements_say_where_stages_live() {
    assert_eq!(Placement::looped(3, 2).unwrap().to_string(), "0,1,2,0,1,2");
    assert_eq!(Placement::vee(3).unwrap().to_string(), "0,1,2,2,1,0");
    let own = Placement::new([0, 0, 1, 1, 0].map(Rank).to_vec()).unwrap();
    assert_eq!((own.ranks(), own.stages(), own.chunks()), (2, 5, vec![3, 2]));
    assert_eq!(own.stages_on(Rank(0)).collect::<Vec<_>>(), [0, 1, 4].map(StageId));
    assert_eq!((own.rank(StageId(4)), own.rank(StageId(5))), (Some(Rank(0)), None));
}

#[test]
fn a_placement_without_a_stage_somewhere_is_refused() {
    let gap =
        "rank 1 has no stage, though there is a rank 2; number the ranks from 0 and give each one a stage";
    assert_eq!(message(Placement::new([0, 2, 0].map(Rank).to_vec())), gap);
    assert_eq!(message(Placement::new(vec![])), "a placement needs a stage");
    let none = "a placement needs at least 1 rank and 1 chunk on each; it was given 0 ranks and 2 chunks";
    assert_eq!(message(Placement::vee(0)), none);
}

#[test]
fn placements_are_named_in_text() {
    let place = |text: &str, ranks, stages| text.parse::<PlacementSpec>().unwrap().place(ranks, stages);
    assert_eq!(place("looped", 2, 4).unwrap().to_string(), "0,1,0,1");
    assert_eq!(place("vee", 2, 4).unwrap().to_string(), "0,1,1,0");
    assert_eq!(place("0, 1,1,0", 2, 4).unwrap().to_string(), "0,1,1,0");
    let refusals = [
        (
            "looped",
            "placement looped wants the same number of stages on every rank, but there are 5 stages on 2 \
             ranks",
        ),
        ("vee", "placement vee wants two stages on every rank, but there are 5 stages on 2 ranks"),
        ("0,1,1,0", "placement 0,1,1,0 is for 4 stages on 2 ranks, but there are 5 stages on 2 ranks"),
    ];
    for (text, refusal) in refusals {
        assert_eq!(message(place(text, 2, 5)), refusal);
    }
    let unknown = "\"zigzag\" is not a placement; known are looped, vee and a list of the stages' ranks such \
        as 0,1,1,0";
    assert_eq!(message("zigzag".parse::<PlacementSpec>()), unknown);
}

#[test]
fn what_is_no_action_is_refused() {
    for text in ["", "F0", "2F", "2X0", "2F0x", "-1F0", "2SEND_W0", "2STEP3", "99999999999F0", "2f0"] {
        let known = "known are 2F0, 2B0, 2I0, 2W0, 2SEND_F0, 2RECV_F0, 2SEND_B0, 2RECV_B0 (stage, action, \
            micro-batch), 2REDUCE_GRAD and 2STEP (stage)";
        assert_eq!(message(text.parse::<Action>()), format!("{text:?} is not an action; {known}"));
    }
}

fn action() -> impl Strategy<Value = Action> {
    let cell = || (any::<u32>(), any::<u32>()).prop_map(|(stage, micro_batch)| Cell::new(stage, micro_batch));
    let pass =
        prop::sample::select(vec![Pass::Forward, Pass::Backward, Pass::BackwardInput, Pass::BackwardWeight]);
    let flow = || prop::sample::select(vec![Flow::Activation, Flow::Gradient]);
    prop_oneof![
        (pass, cell()).prop_map(|(pass, cell)| Action::Compute(pass, cell)),
        (flow(), cell()).prop_map(|(flow, cell)| Action::Send(flow, cell)),
        (flow(), cell()).prop_map(|(flow, cell)| Action::Recv(flow, cell)),
        any::<u32>().prop_map(|stage| Action::Reduce(StageId(stage))),
        any::<u32>().prop_map(|stage| Action::Step(StageId(stage))),
    ]
}

proptest! {
    #[test]
    fn every_action_is_read_as_it_is_written(action in action()) {
        prop_assert_eq!(action.to_string().parse::<Action>().unwrap(), action);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "[0-9FBIW,;()_SENDRCVTP\n]{0,60}") {
        let _ = Schedule::from_csv("fuzz", &text, None, LinkKind::Ordered);
    }

    #[test]
    fn csv_is_read_as_it_was_written(
        name in prop::sample::select(Schedule::names().collect::<Vec<_>>()),
        ranks in 1..6u32,
        micro_batches in 1..9u32,
    ) {
        let schedule = Schedule::named(name, ranks, micro_batches).unwrap();
        let passes = Schedule::from_csv(name, &schedule.csv(), None, LinkKind::Buffered).unwrap();
        prop_assert_eq!((&passes.schedule, passes.lowered), (&schedule, false));
        let comms = Schedule::from_csv(name, &schedule.csv_with_comms(), None, LinkKind::Ordered).unwrap();
        prop_assert_eq!(comms.schedule.csv_with_comms(), schedule.csv_with_comms());
        prop_assert_eq!(comms.lowered, ranks > 1);
    }

    #[test]
    fn each_reduction_stands_behind_the_stages_last_backward_weight_at_all_sizes(
        name in prop::sample::select(Schedule::names().collect::<Vec<_>>()),
        ranks in 1..6u32,
        micro_batches in 1..9u32,
    ) {
        let plain = Schedule::named(name, ranks, micro_batches).unwrap();
        let schedule = plain.clone().for_replicas(2);
        prop_assert_eq!(schedule.csv(), plain.csv());
        prop_assert_eq!(plain.clone().for_replicas(1), plain.clone());
        prop_assert_eq!(plain.clone().for_replicas(3), schedule.clone());
        prop_assert_eq!(schedule.clone().for_replicas(2), schedule.clone());
        let read = Schedule::from_csv(name, &schedule.csv_with_comms(), None, LinkKind::Ordered).unwrap();
        prop_assert_eq!(read.schedule.csv_with_comms(), schedule.csv_with_comms());
        for rank in (0..ranks).map(Rank) {
            let row = schedule.actions(rank);
            let without: Vec<Action> =
                row.iter().copied().filter(|action| !matches!(action, Action::Reduce(_))).collect();
            prop_assert_eq!(&without[..], plain.actions(rank));
            for stage in schedule.placement().stages_on(rank) {
                let at = row.iter().position(|&action| action == Action::Reduce(stage)).unwrap();
                let last = row[..at].iter().rposition(|action| !matches!(action, Action::Send(..))).unwrap();
                let makes_weights = |action: &Action| match action {
                    Action::Compute(Pass::Backward | Pass::BackwardWeight, cell) => cell.stage == stage,
                    _ => false,
                };
                prop_assert!(makes_weights(&row[last]), "{:?}", row);
                prop_assert!(!row[at..].iter().any(makes_weights), "{:?}", row);
            }
        }
    }
}
