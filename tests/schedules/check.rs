//! The checker. What it accepts runs, what it refuses would not run, and the error says why.

use pipewright::error::ScheduleError;

use super::*;

fn csv(text: &str, placement: Option<&str>, links: LinkKind) -> Result<Schedule, String> {
    let placement = placement.map(|text| text.parse::<PlacementSpec>().unwrap());
    match Schedule::from_csv("own", text, placement.as_ref(), links) {
        Ok(read) => Ok(read.schedule),
        Err(Error::Schedule(error)) => Err(error.to_string()),
        Err(other) => panic!("not a refusal: {other:?}"),
    }
}

fn refusal(text: &str) -> String {
    csv(text, None, LinkKind::Buffered).unwrap_err()
}

#[test]
fn every_maker_is_accepted_at_any_size() {
    for name in Schedule::names() {
        for ranks in [1, 2, 3, 5, 8, 16] {
            for micro_batches in [1, 2, 3, 7, 16, 33, 64] {
                let schedule = Schedule::named(name, ranks, micro_batches).unwrap();
                assert_eq!((schedule.ranks(), schedule.micro_batches()), (ranks, micro_batches));
                schedule.holds_on(LinkKind::Buffered).unwrap();
            }
        }
    }
}

#[test]
fn a_missing_cell_is_named() {
    assert_eq!(refusal("0F0,0F1,0B0,0B1\n1F0,1B0,1B1"), "rank 1 lacks 1F1");
    assert_eq!(refusal("0F0,0F1,0B0,0B1\n1F0,1F1,1B1"), "rank 1 lacks 1B0 (or 1I0 and 1W0)");
    assert_eq!(refusal("0F0,0F1,0B0,0I1\n1F0,1B0,1F1,1B1"), "rank 0 lacks 0W1, or write 0B1 for 0I1");
    assert_eq!(refusal("0F0,0F1,0B0,0W1\n1F0,1B0,1F1,1B1"), "rank 0 lacks 0I1, which 0W1 needs");
}

#[test]
fn a_repeated_cell_is_named() {
    assert_eq!(refusal("0F0,0F0,0B0"), "rank 0, action 1 (0F0) is at action 0 of rank 0 already; remove one");
    assert_eq!(
        refusal("0F0,0B0,0I0,0W0"),
        "2 problems:\n  rank 0, action 2 (0I0) and rank 0, action 1 (0B0) make the same gradient; keep \
         either B, or I \
         and W\n  rank 0, action 3 (0W0): 0B0 makes the weight gradient already; remove it or write 0I0"
    );
}

#[test]
fn a_cell_of_a_micro_batch_that_is_not_there_is_named() {
    // PyTorch 2.15's printed 1F1B, in which the last rank's forwards are off by one
    assert_eq!(
        refusal("0F0,0F1,0B0,0B1\n1F1,1B0,1F2,1B1"),
        "2 problems:\n  rank 1, action 2 (1F2): there is no micro-batch 2, only 0 to 1; remove the action\n  \
         rank 1 \
         lacks 1F0"
    );
    assert_eq!(
        refusal("0F0,0F2,0B0,0B2"),
        "micro-batch 1 has only 0 of its 2 forwards and backwards, though there is a micro-batch 2; number \
         them from 0"
    );
    assert_eq!(
        refusal("0F4294967295,0B0,0F0"),
        "rank 0, action 0 (0F4294967295): there is no micro-batch 4294967295, only 0 to 0; remove the action"
    );
}

#[test]
fn a_cell_on_the_wrong_rank_is_named() {
    assert_eq!(
        refusal("0F0,0F1,0B0,0B1,1B1\n1F0,1B0,1F1"),
        "rank 0, action 4 (1B1): stage 1 is on rank 1; move the action there"
    );
    assert_eq!(
        csv("0F0,1F0,1B0,0B0\n2F0,2B0", Some("0,1,0"), LinkKind::Buffered).unwrap_err(),
        "4 problems:\n  rank 0, action 1 (1F0): stage 1 is on rank 1; move the action there\n  rank 0, \
         action 2 \
         (1B0): stage 1 is on rank 1; move the action there\n  rank 1, action 0 (2F0): stage 2 is on \
         rank 0; move \
         the action there\n  and 1 more"
    );
}

#[test]
fn stages_and_ranks_that_do_not_fit_are_refused() {
    assert_eq!(
        refusal("0F0,0B0\n2F0,2B0"),
        "stage 1 has no action on any rank, though there is a stage 2; number the \
        stages from 0"
    );
    assert_eq!(refusal("0F0,0B0\n4294967295F0"), "there is a stage 4294967295, but only 3 actions in all");
    assert_eq!(
        refusal("0F0,0B0\n,,\n1F0,1B0"),
        "rank 1 has no stage, though there is a rank 2; number the ranks from 0 and give each one a stage"
    );
    assert_eq!(refusal(" \n,,"), "there is no action in it; a schedule has a row a rank, such as 0F0,0B0");
    let placement = Placement::looped(2, 1).unwrap();
    let lists = Schedule::from_passes("own", placement.clone(), 1, vec![]).unwrap_err().to_string();
    assert_eq!(
        lists,
        "there are 0 lists of actions, but the stages are on 2 ranks (placement 0,1); \
         give each list stages of its own, each on one rank"
    );
    let none =
        Schedule::from_passes("own", placement.clone(), 0, vec![vec![], vec![]]).unwrap_err().to_string();
    assert_eq!(none, "a schedule needs at least 1 micro-batch, got 0");
    let stage = vec![vec![(Pass::Forward, Cell::new(7, 0))], vec![]];
    let stage = Schedule::from_passes("own", placement, 1, stage).unwrap_err().to_string();
    has(&stage, &["rank 0, action 0 (7F0): there is no stage 7, only 0 to 1; remove the action"]);
}

#[test]
fn a_stage_on_two_ranks_is_named() {
    assert_eq!(
        refusal("0F0,1F0,0B0\n1B0"),
        "stage 1 is on ranks 0 and 1 (1B0 on rank 1); keep a stage on one rank"
    );
}

#[test]
fn micro_batches_that_do_not_begin_with_0_are_named() {
    assert_eq!(
        refusal("0F4000000000,0B4000000000"),
        "the first micro-batch is 4000000000, and no micro-batch has half of its 2 forwards and backwards; \
         number the micro-batches from 0, each with all its stages"
    );
}

#[test]
fn an_error_has_its_place_in_fields() {
    let read = Schedule::from_csv("own", "0F0,0B0\n1F0,,1G0", None, LinkKind::Buffered);
    let Err(Error::Schedule(error)) = read else {
        panic!("{read:?}");
    };
    let ScheduleError::Entry { rank, entry, source } = *error else {
        panic!("{error:?}");
    };
    assert_eq!((rank, entry), (Rank(1), 2));
    assert_eq!(
        source.to_string(),
        "\"1G0\" is not an action; known are 2F0, 2B0, 2I0, 2W0, 2SEND_F0, 2RECV_F0, 2SEND_B0, 2RECV_B0 \
         (stage, action, micro-batch), 2REDUCE_GRAD and 2STEP (stage)"
    );
    let stuck = Schedule::from_csv("own", "0B0,0F0", None, LinkKind::Buffered);
    let Err(Error::Schedule(error)) = stuck else {
        panic!("{stuck:?}");
    };
    let ScheduleError::Deadlock(deadlock) = *error else {
        panic!("{error:?}");
    };
    assert!(deadlock.cycle);
    assert_eq!((deadlock.waits.len(), deadlock.waits[0].who.index), (2, 0));
}

#[test]
fn transfers_have_to_be_those_that_the_placement_calls_for() {
    let lowered = |rank0: &str, rank1: &str| refusal(&format!("{rank0}\n{rank1}"));
    let (rank0, rank1) = ("0F0,0SEND_F0,0RECV_B0,0B0", "1RECV_F0,1F0,1B0,1SEND_B0");
    csv(&format!("{rank0}\n{rank1}"), None, LinkKind::Ordered).unwrap();
    assert_eq!(lowered("0F0,0RECV_B0,0B0", rank1), "rank 0 lacks 0SEND_F0");
    assert_eq!(lowered(rank0, "1RECV_F0,1F0,1B0"), "rank 1 lacks 1SEND_B0");
    assert_eq!(
        lowered(rank0, "1RECV_F0,1F0,1SEND_F0,1B0,1SEND_B0"),
        "rank 1, action 2 (1SEND_F0): stage 1 has no neighbour on another rank on that side; remove the \
         transfer"
    );
    assert_eq!(
        lowered(rank0, "1RECV_F0,1F0,1RECV_F0,1B0,1SEND_B0"),
        "rank 1, action 2 (1RECV_F0) is at action 0 of rank 1 already; remove one"
    );
    assert_eq!(lowered("0F0,0SEND_F0,0RECV_B0,0B0,0STEP", rank1), "rank 1 lacks 1STEP");
}

#[test]
fn an_order_that_cannot_end_is_refused_with_the_cycle() {
    assert_eq!(
        refusal("0B0,0F0"),
        "the schedule cannot end; these wait for each other:\n  rank 0, action 0 (0B0) needs rank 0, \
         action 1 (0F0)\n  \
         rank 0, action 1 (0F0) comes after rank 0, action 0 (0B0) in its list\nmove one of them after \
         what it needs"
    );
    let text = refusal("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1");
    let cycle = "
  rank 0, action 1 (0B0) needs rank 1, action 2 (1B0)
  rank 1, action 2 (1B0) comes after rank 1, action 1 (1F1) in its list
  rank 1, action 1 (1F1) needs rank 0, action 2 (0F1)
  rank 0, action 2 (0F1) comes after rank 0, action 1 (0B0) in its list";
    has(&text, &[cycle]);
    let early_step = "0F0,0STEP,0B0";
    assert!(refusal(early_step).contains("rank 0, action 2 (0B0) comes after 0STEP"));
}

#[test]
fn a_lowered_schedule_is_judged_on_the_links_named() {
    let text = "\
0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1
1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1
";
    let schedule = csv(text, None, LinkKind::Buffered).unwrap();
    let cycle = "rank 0, action 3 (0SEND_F1) waits for rank 1, action 4 (1RECV_F1)";
    assert!(schedule.holds_on(LinkKind::Ordered).unwrap_err().to_string().contains(cycle));
    assert!(csv(text, None, LinkKind::Ordered).unwrap_err().contains(cycle));
}

#[test]
fn a_cell_that_cannot_be_read_is_named_by_its_rank_and_place() {
    let text = refusal("0F0,0B0\n1F0,,1G0");
    assert!(text.starts_with("rank 1, entry 2: \"1G0\" is not an action; known are 2F0, "), "{text}");
    assert_eq!(
        refusal("0F0,(0B0;0F1)OVERLAP_F_B"),
        "rank 0, entry 1: \"(0B0;0F1)OVERLAP_F_B\" is not a pair of a forward and a backward; write it as \
         (0F7;7B3)OVERLAP_F_B"
    );
}

#[test]
fn cells_in_quotes_are_read_as_without_them() {
    let plain = csv("0F0,0F1,,0B0,0B1\n,1F0,1B0,1F1,1B1", None, LinkKind::Buffered).unwrap();
    let quoted = "\"0F0\",\"0F1\",\"\",\"0B0\",\"0B1\"\r\n\"\", \"1F0\" ,1B0,\" 1F1 \",\"1B1\"\r\n";
    assert_eq!(plain, csv(quoted, None, LinkKind::Buffered).unwrap());
    assert_eq!(refusal("\"0F0\",\"0B0"), refusal("0F0,\"0B0"), "a quote that nothing closes is refused");
}

#[test]
fn cells_about_shards_and_waits_are_left_out_and_counted() {
    let text = "0UNSHARD,0F0,,0B0,0REDUCE_GRAD,0RESHARD\r\n1F0,1B0,1REDUCE_GRAD,1WAIT_REDUCE_GRAD\r\n\r\n";
    let read = Schedule::from_csv("own", text, None, LinkKind::Buffered).unwrap();
    assert_eq!(read.left_out, [("UNSHARD", 1), ("RESHARD", 1), ("WAIT_REDUCE_GRAD", 1)]);
    assert_eq!(read.schedule.csv(), "0F0,0B0\n1F0,1B0\n");
    assert!(read.schedule.has_reductions() && !read.lowered);
}

#[test]
fn every_stage_has_one_reduction_or_none_has_one() {
    csv("0F0,0B0,0REDUCE_GRAD\n1F0,1B0,1REDUCE_GRAD", None, LinkKind::Ordered).unwrap();
    assert_eq!(
        refusal("0F0,0B0,0REDUCE_GRAD\n1F0,1B0"),
        "rank 1 lacks 1REDUCE_GRAD, though other stages have a reduction; give each stage one, or none"
    );
    assert_eq!(
        refusal("0F0,0B0,0REDUCE_GRAD,0REDUCE_GRAD\n1F0,1B0,1REDUCE_GRAD"),
        "rank 0, action 3 (0REDUCE_GRAD) is at action 2 of rank 0 already; remove one"
    );
    assert_eq!(
        refusal("0F0,0B0,0REDUCE_GRAD,1REDUCE_GRAD\n1F0,1B0"),
        "rank 0, action 3 (1REDUCE_GRAD): stage 1 is on rank 1; move the action there"
    );
}

#[test]
fn a_reduction_comes_after_the_stages_backward_weights_and_before_its_step() {
    for (early, weight) in
        [("0F0,0F1,0B0,0REDUCE_GRAD,0B1", "0B1"), ("0F0,0F1,0I0,0I1,0W0,0REDUCE_GRAD,0W1", "0W1")]
    {
        let text = refusal(early);
        has(&text, &[&format!("(0REDUCE_GRAD) needs rank 0, action {}", early.matches(',').count())]);
        has(&text, &[&format!("({weight}) comes after rank 0")]);
    }
    assert_eq!(
        refusal("0F0,0B0,0STEP,0REDUCE_GRAD"),
        "rank 0, action 3 (0REDUCE_GRAD) comes after 0STEP; put the steps at the end of the rank's list"
    );
    csv("0F0,1F0,1B0,1REDUCE_GRAD,0B0,0REDUCE_GRAD", None, LinkKind::Ordered).unwrap();
}

#[test]
fn a_reduction_takes_its_place_in_the_queue_of_ordered_links() {
    // Rank 1's reduction is queued behind a receive, but its matching send comes after the reduction
    // everywhere.
    let text = "\
0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD
1RECV_F0,1F0,1B0,1REDUCE_GRAD,1SEND_B0
";
    csv(text, None, LinkKind::Ordered).unwrap();
    let stuck = replay(
        &[
            ["0F0", "0SEND_F0", "0B0"].map(|text| text.parse().unwrap()).to_vec(),
            ["1B0", "1RECV_F1", "1REDUCE_GRAD", "1STEP"].map(|text| text.parse().unwrap()).to_vec(),
        ],
        LinkKind::Ordered,
    );
    let text = stuck.unwrap_err().to_string();
    has(&text, &["rank 1, action 2 (1REDUCE_GRAD) is queued behind rank 1, action 1 (1RECV_F1)"]);
}
