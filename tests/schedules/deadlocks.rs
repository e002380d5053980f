//! Lists of actions that deadlock, and the errors that refuse them.

use super::*;

fn rows(texts: &[&str]) -> Vec<Vec<Action>> {
    let row = |text: &&str| text.split_whitespace().map(|cell| cell.parse().unwrap()).collect();
    texts.iter().map(row).collect()
}

fn refusal(texts: &[&str], links: LinkKind) -> String {
    replay(&rows(texts), links).unwrap_err().to_string()
}

#[test]
fn two_sends_that_face_each_other_lock_ordered_links() {
    // pytorch/pytorch#172668
    let fragment = ["0SEND_F1 2RECV_F0 2F0", "1SEND_F0 1RECV_F1 1F1"];
    replay(&rows(&fragment), LinkKind::Buffered).unwrap();
    assert_eq!(
        refusal(&fragment, LinkKind::Ordered),
        "\
the schedule cannot end on ordered links; these wait for each other:
  rank 0, action 0 (0SEND_F1) waits for rank 1, action 1 (1RECV_F1)
  rank 1, action 1 (1RECV_F1) is queued behind rank 1, action 0 (1SEND_F0)
  rank 1, action 0 (1SEND_F0) waits for rank 0, action 1 (2RECV_F0)
  rank 0, action 1 (2RECV_F0) is queued behind rank 0, action 0 (0SEND_F1)
put these transfers in the same order on both ranks, or leave transfers out: lowering places them safely"
    );
}

#[test]
fn a_send_ahead_of_a_receive_locks_even_with_ranks_alternating() {
    // pytorch/pytorch#172668
    let fragment = [
        "2SEND_F1 0F2 0SEND_F2 2RECV_B0 2B0", //
        "3RECV_F1 3SEND_B0 3F1 3B1 1RECV_F2 3SEND_B1 1F2",
    ];
    replay(&rows(&fragment), LinkKind::Buffered).unwrap();
    assert_eq!(
        refusal(&fragment, LinkKind::Ordered),
        "\
the schedule cannot end on ordered links; these wait for each other:
  rank 0, action 2 (0SEND_F2) waits for rank 1, action 4 (1RECV_F2)
  rank 1, action 4 (1RECV_F2) is queued behind rank 1, action 1 (3SEND_B0)
  rank 1, action 1 (3SEND_B0) waits for rank 0, action 3 (2RECV_B0)
  rank 0, action 3 (2RECV_B0) is queued behind rank 0, action 2 (0SEND_F2)
put these transfers in the same order on both ranks, or leave transfers out: lowering places them safely"
    );
}

#[test]
fn a_pass_behind_another_ranks_later_send_locks_any_links() {
    let fragment = ["0F0 0RECV_B0 0B0 0SEND_F0", "1RECV_F0 1F0 1B0 1SEND_B0"];
    for links in [LinkKind::Buffered, LinkKind::Ordered] {
        let text = refusal(&fragment, links);
        let cycle = "
  rank 0, action 1 (0RECV_B0) waits for rank 1, action 3 (1SEND_B0)
  rank 1, action 3 (1SEND_B0) comes after rank 1, action 1 (1F0) in its list
  rank 1, action 1 (1F0) needs rank 1, action 0 (1RECV_F0)
  rank 1, action 0 (1RECV_F0) waits for rank 0, action 3 (0SEND_F0)
  rank 0, action 3 (0SEND_F0) comes after rank 0, action 2 (0B0) in its list
  rank 0, action 2 (0B0) needs rank 0, action 1 (0RECV_B0)
move one of them after what it needs";
        assert!(text.ends_with(cycle), "{text}");
    }
}

#[test]
fn a_pass_ahead_of_its_own_receive_waits_for_ever() {
    let text = refusal(&["0F0 0SEND_F0", "1F0 1RECV_F0"], LinkKind::Buffered);
    assert_eq!(
        text,
        "\
the schedule cannot end; these wait for each other:
  rank 1, action 0 (1F0) needs rank 1, action 1 (1RECV_F0)
  rank 1, action 1 (1RECV_F0) comes after rank 1, action 0 (1F0) in its list
move one of them after what it needs"
    );
}

#[test]
fn a_transfer_with_one_end_is_named() {
    let text = refusal(&["0F0", "1RECV_F0 1F0"], LinkKind::Buffered);
    assert_eq!(
        text,
        "\
the schedule cannot end on buffered links; these wait for what never happens:
  rank 1, action 1 (1F0) needs rank 1, action 0 (1RECV_F0)
  rank 1, action 0 (1RECV_F0) has no other end
add the missing end, or leave transfers out: lowering places them"
    );
    replay(&rows(&["0F0 0SEND_F0", "1F0"]), LinkKind::Buffered).unwrap();
    let text = refusal(&["0F0 0SEND_F0", "1F0"], LinkKind::Ordered);
    has(&text, &["rank 0, action 1 (0SEND_F0) has no other end"]);
}

#[test]
fn what_pytorch_lowers_in_its_own_tests_ends_on_ordered_links() {
    let cases: [&[&str]; 3] = [
        &[
            "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1",
            "1RECV_F0 1RECV_F1 1F0 1B0 1SEND_B0 1F1 1B1 1SEND_B1",
        ],
        &[
            "0F0 0SEND_F0 0F1 0SEND_F1 3RECV_F0 3F0 3B0 3SEND_B0 3RECV_F1 3F1 3B1 3SEND_B1 0RECV_B0 0B0 \
             3W0 0RECV_B1 \
             0B1 3W1 0W0 0W1",
            "1RECV_F0 1RECV_F1 1F0 2F0 2SEND_F0 1F1 2RECV_B0 2F1 2SEND_F1 2B0 2RECV_B1 1B0 1SEND_B0 2B1 \
             1B1 1SEND_B1 \
             2W0 2W1 1W0 1W1",
        ],
        &[
            "0F0 0F1 0SEND_F0 0SEND_F1 0RECV_B0 0RECV_B1 0B0 0B1",
            "1RECV_F0 1RECV_F1 1F0 1F1 1B0 1B1 1SEND_B0 1SEND_B1",
        ],
    ];
    for case in cases {
        replay(&rows(case), LinkKind::Ordered).unwrap();
    }
}

#[test]
fn receives_that_pytorch_defers_or_posts_early_lock_ordered_links_only() {
    // pytorch/pytorch test_schedule.py: simple_2_rank_2_stage after its deferral, and _iw_split before
    let deferred = [
        "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1",
        "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1",
    ];
    let early = [
        "0RECV_B0 0F0 0SEND_F0 0F1 0SEND_F1 0I0 0W0 0RECV_B1 0I1 0W1",
        "1RECV_F0 1RECV_F1 1F0 1I0 1SEND_B0 1W0 1F1 1I1 1SEND_B1 1W1",
    ];
    let queued = [
        (deferred, "rank 1, action 4 (1RECV_F1) is queued behind rank 1, action 3 (1SEND_B0)"),
        (early, "rank 0, action 2 (0SEND_F0) is queued behind rank 0, action 0 (0RECV_B0)"),
    ];
    for (fragment, queued) in queued {
        replay(&rows(&fragment), LinkKind::Buffered).unwrap();
        has(&refusal(&fragment, LinkKind::Ordered), &[queued]);
    }
}

#[test]
fn a_replay_refuses_what_stands_twice_or_on_two_ranks() {
    assert_eq!(
        refusal(&["0F0 0F0"], LinkKind::Buffered),
        "rank 0, action 1 (0F0) was already done at rank 0, action 0 (0F0); remove one of them"
    );
    assert_eq!(
        refusal(&["0F0", "0F1"], LinkKind::Buffered),
        "stage 0 is on ranks 0 and 1 (0F1 on rank 1); keep a stage on one rank"
    );
    let text = refusal(&["4294967295F4294967295"], LinkKind::Buffered);
    assert_eq!(
        text,
        "4294967295 stages x 4294967295 micro-batches are too many: their product may be \
         8,388,608 (2^23) at most"
    );
}

#[test]
fn the_replay_of_nothing_ends() {
    replay(&[], LinkKind::Ordered).unwrap();
    replay(&[vec![], vec![]], LinkKind::Ordered).unwrap();
}

/// The refusal of lists with transfers.
fn refusal_of_actions(text: &str) -> String {
    Schedule::from_csv("mine", text, None, LinkKind::Buffered).expect_err("it must be refused").to_string()
}

#[test]
fn nothing_comes_after_a_step_since_all_ranks_meet_there() {
    assert_eq!(
        refusal_of_actions("0F0,0SEND_F0,0RECV_B0,0B0,0STEP\n1RECV_F0,1F0,1B0,1STEP,1SEND_B0"),
        "rank 1, action 4 (1SEND_B0) comes after 1STEP; put the steps at the end of the rank's list"
    );
    let early = "0F0,0SEND_F0,2RECV_F0,2F0,2B0,2SEND_B0,2STEP,0RECV_B0,0B0,0STEP\n\
                 1RECV_F0,1F0,1SEND_F0,1RECV_B0,1B0,1SEND_B0,1STEP";
    assert!(refusal_of_actions(early).contains("rank 0, action 7 (0RECV_B0) comes after 2STEP"));
}
