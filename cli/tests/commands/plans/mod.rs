//! The commands `plan` and `check` as scripts see them: what they print and how they exit.

mod replicas;

use serde_json::json;

use super::*;

/// The exit status, the standard output and the standard error.
fn run(args: &str) -> (i32, String, String) {
    let output = Command::new(cargo_bin("pipewright")).args(args.split_whitespace()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn check(csv: &str, options: &str) -> (i32, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("own.csv");
    std::fs::write(&file, csv).unwrap();
    let (status, out, err) = run(&format!("check {} {options}", file.display()));
    let strip = |text: String| text.replace(&format!("{}/", folder.path().display()), "");
    (status, strip(out), strip(err))
}

#[test]
fn plan_prints_json_for_scripts() {
    let (status, out, err) = run("plan --ranks 4 --micro-batches 8 --schedule 1f1b --format json");
    assert_eq!((status, err.as_str()), (0, ""));
    let plan: serde_json::Value = serde_json::from_str(&out).unwrap();
    let mut names: Vec<_> = plan.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort();
    let mut expected = [
        "schedule",
        "ranks",
        "stages",
        "chunks",
        "micro_batches",
        "span",
        "makespan",
        "bubble_span",
        "bubble_makespan",
        "step_with_barrier",
        "step_without_barrier",
        "replicas",
        "replica",
        "bubble_step",
        "exposed_reduction",
        "exposed_transfer",
        "busy",
        "warm_up",
        "waiting",
        "drain",
        "waits",
        "peak_activations",
        "peak_memory",
        "actions",
    ];
    expected.sort();
    assert_eq!(names, expected);
    for (key, value) in [
        ("schedule", json!("1f1b")),
        ("ranks", json!(4)),
        ("stages", json!(4)),
        ("chunks", json!(1)),
        ("micro_batches", json!(8)),
        ("span", json!(33.0)),
        ("makespan", json!(33.0)),
        ("bubble_span", json!(9.0 / 33.0)),
        ("step_with_barrier", json!(33.0)),
        ("replicas", json!(1)),
        ("replica", json!(0)),
        ("bubble_step", json!(1.0 - 96.0 / 132.0)),
        ("exposed_reduction", json!(0.0)),
        ("exposed_transfer", json!(0.0)),
        ("step_without_barrier", json!(33.0)),
        ("busy", json!([24.0, 24.0, 24.0, 24.0])),
        ("warm_up", json!([0.0, 1.0, 2.0, 3.0])),
        ("waiting", json!([9.0, 6.0, 3.0, 0.0])),
        ("drain", json!([0.0, 2.0, 4.0, 6.0])),
        ("waits", json!([[{"on": 1, "time": 9.0}], [{"on": 2, "time": 6.0}], [{"on": 3, "time": 3.0}], []])),
        ("peak_activations", json!([4.0, 3.0, 2.0, 1.0])),
        ("peak_memory", json!([4.0, 3.0, 2.0, 1.0])),
    ] {
        assert_eq!(plan[key], value, "{key}");
    }
    assert_eq!(plan["actions"][3][1], "3B0");
    assert_eq!(plan["actions"][3].as_array().unwrap().len(), 16);
}

#[test]
fn plan_prints_csv_that_check_reads() {
    let (_, passes, _) = run("plan --ranks 2 --micro-batches 2 --schedule 1f1b --format csv");
    assert_eq!(passes, "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
    assert_eq!(
        check(&passes, ""),
        (
            0,
            "own.csv: accepted\nranks 2, stages 2 (placement 0,1), micro-batches 2\ncompute-only: \
             transfers were added \
             between its passes\nordered links: safe\n"
                .into(),
            String::new()
        )
    );
    let (_, lowered, _) = run("plan --ranks 2 --micro-batches 2 --schedule 1f1b --format csv --with-comms");
    let (status, out, _) = check(&lowered, "--links ordered --placement looped");
    assert_eq!(status, 0);
    has(&out, &["\nlowered: with its own transfers, checked as they are on ordered links\n"]);
}

#[test]
fn plan_prints_a_table_with_a_timetable_for_people() {
    let (status, out, _) = run("plan --ranks 2 --micro-batches 3 --schedule gpipe --backward-weight 2");
    assert_eq!(status, 0);
    assert_eq!(
        out,
        "\
schedule gpipe, ranks 2, stages 2, micro-batches 3, buffered links

rank      busy   warm-up   waiting     drain   bubble  peak act.  peak mem.  waits for
0       12.000     0.000     4.000     0.000  25.00 %       3.00       3.00  1 (4.000)
1       12.000     1.000     0.000     3.000  25.00 %       3.00       3.00

makespan 16.000, bubble 0.2500; longest span 16.000, bubble 0.2500
from a step to the next: 16.000 with a barrier at its end, 16.000 without

rank 0 | F0 F1 F2 .. .. B0 B1 B2
rank 1 | .. F0 F1 F2 B0 B1 B2
"
    );
    let (_, out, _) = run("plan --ranks 2 --micro-batches 1 --schedule gpipe --with-comms");
    assert!(
        out.ends_with("rank 0 | 0F0 0SEND_F0 0RECV_B0 0B0 0STEP\nrank 1 | 1RECV_F0 1F0 1B0 1SEND_B0 1STEP\n")
    );
    let (_, out, _) = run("plan --ranks 2 --micro-batches 300 --schedule gpipe");
    assert!(
        out.ends_with("the timetable is wider than 160 columns; --format csv prints the passes\n"),
        "{out}"
    );
}

#[test]
fn bad_arguments_exit_with_2_and_name_what_is_wrong() {
    let (status, out, err) = run("plan --ranks 0 --micro-batches 8 --schedule 1f1b");
    assert_eq!((status, out.as_str()), (2, ""));
    assert_eq!(
        err,
        "error: schedule 1f1b needs at least 1 rank and 1 micro-batch; it was given 0 ranks and 8 \
         micro-batches\n"
    );
    let (status, _, err) = run("plan --ranks 4 --micro-batches 8 --schedule gpip");
    assert_eq!(status, 2);
    has(&err, &["[possible values: gpipe, 1f1b, ", "similar value exists: 'gpipe'"]);
    let (status, _, err) = run("plan --ranks 4 --micro-batches 8 --schedule 1f1b --chunks 2");
    assert_eq!(
        (status, err.as_str()),
        (2, "error: schedule 1f1b has 1 stages a rank; it was given 2 chunks\n")
    );
    let (status, _, err) = run("plan --ranks 4 --micro-batches 8 --schedule auto --memory 0.4");
    assert_eq!(
        (status, err.as_str()),
        (2, "error: no schedule fits in 0.4 a rank; the least that works on 4 ranks is 1\n")
    );
    let (status, _, err) = run("plan --ranks 4 --micro-batches 8 --schedule zb-v --goal span");
    assert_eq!(
        (status, err.as_str()),
        (2, "error: --memory and --goal are for --schedule auto; zb-v has a fixed order\n")
    );
    let (status, _, err) = run("plan --ranks 4 --micro-batches 8 --schedule gpipe --links rdma");
    assert_eq!(status, 2);
    has(&err, &["\"rdma\" are no links; known are buffered and ordered"]);
}

#[test]
fn costs_that_are_no_costs_exit_with_2_and_are_named() {
    for option in ["forward", "backward-input", "backward-weight", "update", "saved", "pending", "comm"] {
        for cost in ["-1", "NaN", "inf"] {
            let (status, out, err) =
                run(&format!("plan --ranks 4 --micro-batches 8 --schedule gpipe --{option}={cost}"));
            assert_eq!((status, out.as_str()), (2, ""));
            assert_eq!(err, format!("error: the cost {option} is {cost}; it has to be a number from 0 on\n"));
        }
    }
    let (status, _, err) = run("plan --ranks 4 --micro-batches 8 --schedule gpipe --comm 1e308");
    let expected = "error: the cost comm is 1e308; it has to be no more than 1e100, so take a larger unit\n";
    assert_eq!((status, err.as_str()), (2, expected));
}

#[test]
fn sizes_that_do_not_fit_exit_with_2() {
    let (status, _, err) = run("plan --ranks 4 --micro-batches 8 --schedule gpipe --chunks 3");
    assert_eq!(
        (status, err.as_str()),
        (2, "error: schedule gpipe has 1 stages a rank; it was given 3 chunks\n")
    );
    let (status, _, err) = run("plan --ranks 65536 --micro-batches 4294967295 --schedule 1f1b");
    let expected = "error: schedule 1f1b with 65536 ranks x 1 chunks x 4294967295 micro-batches is too \
        large: their product may be 8,388,608 (2^23) at most\n";
    assert_eq!((status, err.as_str()), (2, expected));
}

#[test]
fn plan_tells_memory_and_the_time_between_steps() {
    let args =
        "plan --ranks 2 --micro-batches 3 --schedule 1f1b --saved 8 --pending 2 --update 0.5 --format json";
    let (status, out, err) = run(args);
    assert_eq!((status, err.as_str()), (0, ""));
    let plan: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(plan["peak_memory"], json!([16.0, 8.0]));
    assert_eq!(plan["peak_activations"], json!([2.0, 1.0]));
    assert_eq!((&plan["makespan"], &plan["step_with_barrier"]), (&json!(12.0), &json!(12.5)));
    assert_eq!(plan["step_without_barrier"], json!(12.5));
}

#[test]
fn plan_with_reductions_shows_them_and_what_of_them_no_pass_hides() {
    let args = "plan --ranks 2 --micro-batches 1 --schedule 1f1b --reduce 2 --with-comms";
    let (status, out, err) = run(args);
    assert_eq!((status, err.as_str()), (0, ""));
    has(&out, &["reductions: 2.000 after the last pass, the rest hidden behind passes\n"]);
    has(&out, &["rank 1 | 1RECV_F0 1F0 1B0 1SEND_B0 1REDUCE_GRAD 1STEP\n"]);
    let (_, out, _) = run("plan --ranks 2 --micro-batches 1 --schedule 1f1b --reduce 2 --format json");
    let plan: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&plan["exposed_reductions"], &plan["step_with_barrier"]), (&json!(2.0), &json!(8.0)));
    let (_, out, _) = run("plan --ranks 2 --micro-batches 1 --schedule 1f1b --format json");
    assert!(!out.contains("exposed_reductions"), "{out}");
}

#[test]
fn options_about_a_config_are_refused_without_one() {
    for (option, advice) in [
        (
            "--costs costs.json",
            "--costs is for the plan of a config: write `pipewright plan CONFIG --costs FILE`",
        ),
        ("--set model.dim=8", "--set is for the plan of a config: write `pipewright plan CONFIG --set"),
    ] {
        let (status, out, err) = run(&format!("plan --ranks 4 --micro-batches 8 --schedule 1f1b {option}"));
        assert_eq!((status, out.as_str()), (2, ""), "{err}");
        has(&err, &[advice]);
    }
}

#[test]
fn check_refuses_with_2_and_names_the_file_and_the_cell() {
    assert_eq!(
        check("0F0,0F1,0B0,0B1\n1F0,1B0,1B1\n", ""),
        (2, String::new(), "error: own.csv: rank 1 lacks 1F1\n".into())
    );
    let (status, _, err) = check("0F0,0B0\n1F0,1B0\n", "--placement vee");
    let expected =
        "error: own.csv: placement vee wants two stages on every rank, but there are 2 stages on 2 ranks\n";
    assert_eq!((status, err.as_str()), (2, expected));
    let (status, _, err) = run("check no/such/file.csv");
    assert_eq!(status, 2);
    assert!(err.starts_with("error: cannot read no/such/file.csv: "), "{err}");
}

#[test]
fn check_says_whether_ordered_links_are_safe_too() {
    let csv = "\
0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0WAIT_REDUCE_GRAD
1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1
";
    assert_eq!(
        check(csv, ""),
        (
            0,
            "\
own.csv: accepted
ranks 2, stages 2 (placement 0,1), micro-batches 2
lowered: with its own transfers, checked as they are on buffered links
ignored, because a schedule here does not have them: 1 WAIT_REDUCE_GRAD
ordered links: not safe: the schedule cannot end on ordered links; these wait for each other:
  rank 0, action 3 (0SEND_F1) waits for rank 1, action 4 (1RECV_F1)
  rank 1, action 4 (1RECV_F1) is queued behind rank 1, action 3 (1SEND_B0)
  rank 1, action 3 (1SEND_B0) waits for rank 0, action 4 (0RECV_B0)
  rank 0, action 4 (0RECV_B0) is queued behind rank 0, action 3 (0SEND_F1)
put these transfers in the same order on both ranks, or leave transfers out: lowering places them safely
"
            .into(),
            String::new()
        )
    );
    assert_eq!(check(csv, "--links ordered").0, 2);
}

#[test]
fn plan_for_gpus_that_are_not_here_shows_their_kernels_and_measures_nothing() {
    let sizes = "--set model.dim=256 --set model.heads=4 --set pipeline.stages=2";
    let of =
        |dtype| format!("plan ../examples/gpt-text.toml {sizes} --set pipeline.dtype={dtype} --device h100");
    let (status, out, err) = run(&of("bf16"));
    assert_eq!((status, err.as_str()), (0, ""));
    for part in [": predicted step 0.0", "a prediction for h100: ", "\nattention backward "] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let (status, _, err) = run(&of("f32"));
    assert_eq!(status, 2);
    has(&err, &["pipeline.dtype: for a GPU that is not here (--device)"]);
}
