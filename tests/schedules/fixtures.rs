//! Schedules and figures that other systems printed. They are stored next to the project; without them these
//! tests are skipped.

use pipewright::schedule::FromCsv;

use super::*;

/// The files in a folder whose names have this start and this end, with their text.
fn files(folder: &Path, start: &str, end: &str) -> BTreeMap<String, String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names = names.filter(|name| name.starts_with(start) && name.ends_with(end));
    names.map(|name| (name.clone(), fs::read_to_string(folder.join(&name)).unwrap())).collect()
}

fn read(text: &str) -> Result<FromCsv, String> {
    Schedule::from_csv("fixture", text, None, LinkKind::Buffered).map_err(|error| error.to_string())
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
        assert_eq!(read.left_out.iter().map(|(word, _)| *word).collect::<Vec<_>>(), ["WAIT_REDUCE_GRAD"]);
        let ours = Schedule::gpipe(read.schedule.ranks(), read.schedule.micro_batches()).unwrap();
        let ours = ours.for_replicas(2);
        assert_eq!(read.schedule.csv_with_comms(), ours.csv_with_comms(), "{name}");
        read.schedule.holds_on(LinkKind::Ordered).unwrap();
    }
}

#[test]
fn one_f_one_b_is_deepspeeds_and_zero_bubbles_cell_for_cell() {
    for (name, start, end) in [("deepspeed", "train_", "_compute.csv"), ("zero-bubble", "1f1b_", ".csv")] {
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
        assert!(refusal.contains(&format!("rank {last} lacks {last}F0")), "{name}: {refusal}");
        assert!(refusal.contains("there is no micro-batch"), "{name}: {refusal}");
    }
}

/// The folders with schedules, and how the names of those files end.
const SCHEDULES: [(&str, &str); 5] = [
    ("pytorch-2.15", ".csv"),
    ("pytorch-artifacts", ".csv"),
    ("zero-bubble", ".csv"),
    ("dualpipe", ".csv"),
    ("deepspeed", "_compute.csv"),
];

/// Every schedule of the fixtures, with the folder and name of its file. Left out is the 1F1B that PyTorch
/// prints wrong.
fn schedules() -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (name, end) in SCHEDULES {
        let Some(folder) = folder(name) else { continue };
        for (file, text) in files(&folder, "", end) {
            let table = text.contains("file,") || text.starts_with("model,");
            let wrong = name == "pytorch-2.15" && file.starts_with("1f1b_");
            if !table && !wrong {
                all.push((format!("{name}/{file}"), text));
            }
        }
    }
    all
}

#[test]
fn every_schedule_is_accepted_simulated_and_written_as_it_was_read() {
    for (name, text) in schedules() {
        let read = read(&text).unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
        let schedule = read.schedule;
        simulated(&schedule, &Costs::default());
        let written = if read.lowered { schedule.csv_with_comms() } else { schedule.csv() };
        assert_eq!(written, without(&text, read.lowered), "{name}");
    }
}

/// The text without idle cells and actions that our schedules do not have. If only passes are written,
/// reductions are removed too.
fn without(text: &str, lowered: bool) -> String {
    let words = ["SHARD", "WAIT", if lowered { "WAIT" } else { "REDUCE_GRAD" }];
    let kept = |cell: &&str| !cell.is_empty() && !words.iter().any(|word| cell.contains(word));
    let row = |row: &str| row.split(',').filter(kept).collect::<Vec<_>>().join(",") + "\n";
    text.trim_end().lines().map(row).collect()
}

/// Each rank's passes and reductions.
fn without_transfers(schedule: &Schedule) -> Vec<Vec<Action>> {
    let stays = |action: &Action| !matches!(action, Action::Send(..) | Action::Recv(..));
    let row = |rank| schedule.actions(Rank(rank)).iter().copied().filter(stays).collect();
    (0..schedule.ranks()).map(row).collect()
}

#[test]
fn fixed_orders_with_several_stages_a_rank_are_the_same_cell_for_cell() {
    let mut found = 0;
    for (name, text) in schedules() {
        let starts = [
            ("pytorch-2.15/interleaved1f1b_", "interleaved-1f1b"),
            ("zero-bubble/interleaved-v2_", "interleaved-1f1b"),
            ("pytorch-2.15/loopedbfs_", "looped-bfs"),
            ("pytorch-2.15/dualpipev_", "dualpipe-v"),
            ("pytorch-artifacts/dualpipev_", "dualpipe-v"),
            ("dualpipe/dualpipev_", "dualpipe-v"),
        ];
        let Some((_, ours)) = starts.into_iter().find(|(start, _)| name.starts_with(start)) else {
            continue;
        };
        let theirs = read(&text).unwrap().schedule;
        let chunks = theirs.stages() / theirs.ranks();
        let sizes = (theirs.ranks(), Some(chunks), theirs.micro_batches());
        let ours = Schedule::make(ours, sizes.0, sizes.1, sizes.2, &Costs::default()).unwrap();
        assert_eq!(theirs.csv(), ours.csv(), "{name}");
        if theirs.has_reductions() {
            assert_eq!(without_transfers(&theirs), without_transfers(&ours.for_replicas(2)), "{name}");
        }
        found += 1;
    }
    println!("{found} schedules compared");
}

#[test]
fn dualpipe_idles_as_its_readme_says_where_a_pair_sends_at_its_end() {
    for (name, text) in schedules() {
        let expected = match name.as_str() {
            "pytorch-2.15/dualpipev_p2_m4_v2_comms.csv" => (13.0, 2.5),
            "pytorch-2.15/dualpipev_p4_m8_v2_comms.csv" => (27.0, 4.5),
            _ => continue,
        };
        let simulation = simulated(&read(&text).unwrap().schedule, &Costs::default());
        let peaks = simulation.ranks.iter().map(|rank| rank.peak_activations);
        assert_eq!((simulation.makespan, peaks.fold(0.0, f64::max)), expected, "{name}");
    }
}

/// The most that any rank holds.
fn peaks(simulation: &Simulation) -> [f64; 2] {
    simulation.ranks.iter().fold([0.0; 2], |[activations, memory], rank| {
        [activations.max(rank.peak_activations), memory.max(rank.peak_memory)]
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
        ["longest_rank_span_T", "makespan_T", "peak_act_release_at_I_or_B", "peak_act_release_at_W_or_B"]
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
    let released_at_weight = StageCost { pending: 1.0, ..StageCost::default() };
    let costs = Costs::share(released_at_weight, 0.0).unwrap();
    for (name, index, file, columns) in [pytorch, zero_bubble] {
        let Some(folder) = folder(name) else { return };
        for row in table(&folder.join(index)) {
            let path = folder.join(&row[file]);
            if row[columns[0]].is_empty() || !path.exists() {
                continue;
            }
            let schedule = read(&fs::read_to_string(path).unwrap()).unwrap().schedule;
            let simulation = simulated(&schedule, &costs);
            let [activations, memory] = peaks(&simulation);
            let bubbles = [simulation.bubble_span, simulation.bubble_makespan];
            let ours = [simulation.span, simulation.makespan, activations, memory];
            check(&row, columns, &[ours.as_slice(), &bubbles].concat());
            let period = period(&schedule, &costs, LinkKind::Buffered).unwrap();
            assert!((period - simulation.span).abs() < 1e-9, "{row:?}: period {period}");
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
        let simulation = simulated(&schedule, &costs);
        assert!((simulation.bubble_span - number("bubble_rate")).abs() <= 5.1e-5, "{row:?} {simulation:?}");
        assert_eq!(simulation.ranks[0].peak_activations, number("peak_activation_in_M_B"));
    }
}
