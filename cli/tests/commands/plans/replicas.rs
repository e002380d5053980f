//! The command `plan` for several replicas of a pipeline.

use serde_json::Value;

use super::*;

fn planned(arguments: &str) -> String {
    let (status, out, err) = run(arguments);
    assert_eq!((status, err.as_str()), (0, ""));
    out
}

const UNEVEN: &str = "plan --ranks 2 --replicas 2 --micro-batches 5 --schedule 1f1b --reduce 4 --comm 0.5";

#[test]
fn the_table_is_for_a_replica_and_says_what_is_idle_and_exposed_in_all() {
    let out = planned(UNEVEN);
    assert_eq!(
        out,
        "\
schedule 1f1b, ranks 2, stages 2, micro-batches 3, buffered links

replica 1 of 2, micro-batches 2 to 4 of 5

rank      busy   warm-up   waiting     drain   bubble  peak act.  peak mem.  waits for
0        9.000     0.000     5.000     0.000  35.71 %       2.00       2.00  1 (5.000)
1        9.000     1.500     1.000     2.500  35.71 %       1.00       1.00  0 (1.000)

makespan 14.000, bubble 0.3571; longest span 14.000, bubble 0.3571
reductions: 4.000 after the last pass, the rest hidden behind passes
from a step to the next: 18.000
of a step, 58.3 % is bubble, over all ranks; reductions make it longer by 22.2 % of it, transfers by 11.1 %

rank 0 | F0 F1 .. B0 F2 B1 .. B2
rank 1 | .. F0 B0 F1 B1 F2 B2
"
    );
    let other = planned(&format!("{UNEVEN} --replica 0"));
    has(&other, &["micro-batches 2, buffered links\n\nreplica 0 of 2, micro-batches 0 to 1 of 5\n"]);
    has(&other, &["from a step to the next: 18.000\n"]);
}

#[test]
fn a_replica_without_micro_batches_is_shown_too() {
    let out = planned("plan --ranks 1 --replicas 3 --micro-batches 2 --schedule 1f1b --reduce 1 --replica 2");
    has(&out, &["replica 2 of 3, no micro-batch of 2\n"]);
    let out = planned("plan --ranks 1 --replicas 2 --micro-batches 2 --schedule 1f1b --reduce 1 --replica 1");
    has(&out, &["replica 1 of 2, micro-batch 1 of 2\n"]);
}

#[test]
fn json_has_the_shares_of_a_step_and_the_replica() {
    let plan: Value = serde_json::from_str(&planned(&format!("{UNEVEN} --format json"))).unwrap();
    let number = |key: &str| plan[key].as_f64().unwrap();
    assert_eq!((plan["replicas"].as_u64(), plan["replica"].as_u64()), (Some(2), Some(1)));
    assert_eq!(number("step_with_barrier"), 18.0);
    assert!(plan["step_without_barrier"].is_null(), "replicas meet");
    assert!((number("bubble_step") - (1.0 - 30.0 / 72.0)).abs() < 1e-12);
    assert!((number("exposed_reduction") - 4.0 / 18.0).abs() < 1e-12);
    assert!((number("exposed_transfer") - 2.0 / 18.0).abs() < 1e-12);
}

#[test]
fn a_picture_has_a_row_for_each_rank_of_all_replicas_or_of_one() {
    let all = planned(&format!("{UNEVEN} --format svg"));
    has(&all, &["1f1b: replicas 2, ranks 2, stages 2, micro-batches 5"]);
    for row in ["replica 0, rank 0", "replica 1, rank 0", "replica 1, rank 1"] {
        assert!(all.contains(&format!(">{row}</text>")), "{row}: {all}");
    }
    assert!(all.contains("class=\"q\""), "reductions are drawn");
    let numbers = |svg: &str, number: &str| svg.matches(&format!(">{number}</text>")).count();
    assert!(numbers(&all, "4") >= 4, "the last micro-batch has its number in the batch, and four passes");
    let one = planned(&format!("{UNEVEN} --format svg --replica 0"));
    has(&one, &["micro-batches 2, replica 0</text>", ">rank 1</text>"]);
    assert!(!one.contains("replica 1"), "{one}");
}

#[test]
fn a_cluster_of_1024_ranks_is_planned() {
    let cluster = "plan --ranks 16 --replicas 64 --micro-batches 8192 --schedule interleaved-1f1b --reduce 9";
    let plan: Value = serde_json::from_str(&planned(&format!("{cluster} --format json"))).unwrap();
    assert_eq!((plan["replicas"].as_u64(), plan["micro_batches"].as_u64()), (Some(64), Some(128)));
    let (status, _, err) = run(&format!("{cluster} --format svg"));
    assert_eq!(status, 2, "{err}");
    has(&err, &["or a single replica"]);
    assert!(planned(&format!("{cluster} --format svg --replica 63")).contains("replica 63"));
}

#[test]
fn replicas_that_are_not_there_and_links_without_a_config_are_refused() {
    for (options, message) in [
        (
            "--replicas 2 --replica 2",
            "error: --replica 2: replicas are numbered from 0, and the last one is 1\n",
        ),
        ("--replica 1", "error: --replica 1: replicas are numbered from 0, and the last one is 0\n"),
        (
            "--hosts 2",
            "error: --hosts, --link-* or --between-* is for the plan of a config: write `pipewright plan \
             CONFIG`, or give times by --comm and --reduce\n",
        ),
    ] {
        let (status, _, err) = run(&format!("plan --ranks 2 --micro-batches 4 --schedule 1f1b {options}"));
        assert_eq!((status, err.as_str()), (2, message));
    }
    for (options, part) in [
        ("--replicas 0", "0 is not in 1.."),
        ("--replicas 65537", "65537 is not in 1..=65536"),
        ("--replicas 4294967295", "4294967295 is not in 1..=65536"),
        ("--hosts 0", "0 is not in 1.."),
        ("--link-bandwidth fast", "expected a size above 0"),
    ] {
        let (status, _, err) = run(&format!("plan --ranks 2 --micro-batches 4 --schedule 1f1b {options}"));
        assert!(status == 2 && err.contains(part), "{err}");
    }
    let (status, _, err) = run("plan my.toml --replicas 2");
    assert!(status == 2 && err.contains("cannot be used with"), "{err}");
}
