//! Schedules and numbers that other systems printed. They lie beside the project; without them this skips.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use pipewright::plan::{Simulation, period, simulate};
use pipewright::schedule::{Costs, FromCsv, Links, Schedule, StageCost};

fn folder(name: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../shared/fixtures")
        .join(name);
    if !folder.is_dir() {
        println!("skipped: there is no {}", folder.display());
        return None;
    }
    Some(folder)
}

/// The files of a folder whose names start and end so, with their text.
fn files(folder: &Path, start: &str, end: &str) -> BTreeMap<String, String> {
    let names = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names = names.filter(|name| name.starts_with(start) && name.ends_with(end));
    names
        .map(|name| (name.clone(), fs::read_to_string(folder.join(&name)).unwrap()))
        .collect()
}

fn read(text: &str) -> Result<FromCsv, String> {
    Schedule::from_csv("fixture", text, None, Links::Buffered).map_err(|error| error.to_string())
}

/// The rows of a table, each by column name.
fn table(file: &Path) -> Vec<BTreeMap<String, String>> {
    let text = fs::read_to_string(file).unwrap();
    let mut lines = text.lines().map(|line| line.split(',').map(str::to_string));
    let names: Vec<_> = lines.next().unwrap().collect();
    lines
        .map(|line| names.iter().cloned().zip(line).collect())
        .collect()
}

#[test]
fn gpipe_is_pytorchs_cell_for_cell_lowering_included() {
    let Some(folder) = folder("pytorch-2.15") else {
        return;
    };
    let files = files(&folder, "gpipe_", ".csv");
    assert!(!files.is_empty());
    for (name, text) in files {
        let read = read(&text).unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
        assert_eq!(read.lowered, name.contains("_comms"), "{name}");
        assert_eq!(
            read.left_out.iter().map(|(word, _)| *word).collect::<Vec<_>>(),
            ["REDUCE_GRAD", "WAIT_REDUCE_GRAD"]
        );
        let ours = Schedule::gpipe(read.schedule.ranks(), read.schedule.micro_batches()).unwrap();
        assert_eq!(read.schedule.csv_with_comms(), ours.csv_with_comms(), "{name}");
        read.schedule.holds_on(Links::Ordered).unwrap();
    }
}

#[test]
fn one_f_one_b_is_deepspeeds_and_zero_bubbles_cell_for_cell() {
    for (name, start, end) in [
        ("deepspeed", "train_", "_compute.csv"),
        ("zero-bubble", "1f1b_", ".csv"),
    ] {
        let Some(folder) = folder(name) else { return };
        let files = files(&folder, start, end);
        assert!(!files.is_empty());
        for (name, text) in files {
            let read = read(&text).unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
            let ours = Schedule::one_f_one_b(read.schedule.ranks(), read.schedule.micro_batches()).unwrap();
            assert_eq!(read.schedule.csv(), ours.csv(), "{name}");
        }
    }
}

#[test]
fn the_1f1b_that_pytorch_2_15_prints_is_refused_by_its_cells() {
    let Some(folder) = folder("pytorch-2.15") else {
        return;
    };
    let files = files(&folder, "1f1b_", "_compute.csv");
    assert!(!files.is_empty());
    for (name, text) in files {
        let refusal = read(&text).unwrap_err();
        let last = text.lines().count() - 1;
        assert!(
            refusal.contains(&format!("rank {last} lacks {last}F0")),
            "{name}: {refusal}"
        );
        assert!(refusal.contains("there is no micro-batch"), "{name}: {refusal}");
    }
}

#[test]
fn every_other_schedule_without_overlap_is_accepted() {
    for name in ["pytorch-2.15", "pytorch-artifacts", "zero-bubble", "dualpipe"] {
        let Some(folder) = folder(name) else { return };
        for (name, text) in files(&folder, "", ".csv") {
            let schedule = text.starts_with("0F0") || text.starts_with("0UNSHARD");
            if schedule && !name.starts_with("1f1b_") {
                let read = read(&text);
                assert_eq!(read.is_err(), text.contains("OVERLAP_F_B"), "{name}: {read:?}");
            }
        }
    }
}

/// The most that any rank holds.
fn peaks(simulation: &Simulation) -> [f64; 2] {
    simulation
        .ranks
        .iter()
        .fold([0.0; 2], |[activations, memory], rank| {
            [
                activations.max(rank.peak_activations),
                memory.max(rank.peak_memory),
            ]
        })
}

fn check(row: &BTreeMap<String, String>, columns: &[&str], ours: &[f64]) {
    for (column, ours) in columns.iter().zip(ours) {
        let theirs: f64 = row[*column].parse().unwrap();
        assert!((ours - theirs).abs() <= 5.1e-5, "{row:?}: {column} {ours}");
    }
}

#[test]
fn the_simulator_agrees_at_unit_costs_with_every_row() {
    let pytorch = (
        "pytorch-2.15",
        "unit_cost_simulation.csv",
        "compute_file",
        [
            "longest_rank_span_T",
            "makespan_T",
            "peak_act_release_at_I_or_B",
            "peak_act_release_at_W_or_B",
        ]
        .as_slice(),
    );
    let zero_bubble = (
        "zero-bubble",
        "index.csv",
        "file",
        [
            "longest_rank_span_in_T",
            "makespan_in_T",
            "peak_act_full_stage_units_release_at_I",
            "peak_act_full_stage_units_release_at_W",
            "bubble_rate_longest_span",
            "bubble_rate_makespan",
        ]
        .as_slice(),
    );
    let released_at_weight = StageCost {
        pending: 1.0,
        ..StageCost::default()
    };
    let costs = Costs::share(released_at_weight, 0.0).unwrap();
    for (name, index, file, columns) in [pytorch, zero_bubble] {
        let Some(folder) = folder(name) else { return };
        for row in table(&folder.join(index)) {
            let path = folder.join(&row[file]);
            if row[columns[0]].is_empty() || !path.exists() {
                continue;
            }
            let schedule = read(&fs::read_to_string(path).unwrap()).unwrap().schedule;
            let simulation = simulate(&schedule, &costs, Links::Buffered).unwrap();
            let [activations, memory] = peaks(&simulation);
            let bubbles = [simulation.bubble_span, simulation.bubble_makespan];
            let ours = [simulation.span, simulation.makespan, activations, memory];
            check(&row, columns, &[ours.as_slice(), &bubbles].concat());
            let period = period(&schedule, &costs, Links::Buffered).unwrap();
            assert!(
                (period - simulation.span).abs() < 1e-9,
                "{row:?}: period {period}"
            );
        }
    }
}

#[test]
fn the_simulator_gives_the_papers_bubbles_for_1f1b() {
    let Some(folder) = folder("zero-bubble") else {
        return;
    };
    for row in table(&folder.join("paper_table5_reproduction.csv")) {
        if row["schedule"] != "1F1B" {
            continue;
        }
        let number = |column: &str| row[column].parse::<f64>().unwrap();
        let schedule = Schedule::one_f_one_b(number("p") as u32, number("m") as u32).unwrap();
        let share = StageCost {
            forward: number("T_F"),
            backward_input: number("T_B"),
            backward_weight: number("T_W"),
            ..StageCost::default()
        };
        let costs = Costs::share(share, number("T_comm")).unwrap();
        let simulation = simulate(&schedule, &costs, Links::Buffered).unwrap();
        assert!(
            (simulation.bubble_span - number("bubble_rate")).abs() <= 5.1e-5,
            "{row:?} {simulation:?}"
        );
        assert_eq!(
            simulation.ranks[0].peak_activations,
            number("peak_activation_in_M_B")
        );
    }
}
