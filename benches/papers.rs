//! Compares published bubbles with ours at the same times: `cargo bench --bench papers`.
//!
//! Source: arXiv 2401.10241, the times of table 9 and the rates of table 5 (1F1B, ZB-1p, ZB-2p). For ZB-V,
//! V-Half and V-Min we ran the authors' generators with these times, because their published rates are for
//! other times. All are rates of the longest span, where backward-input frees all that forward kept.

use pipewright::plan::{Costs, Goal, StageCost};
use pipewright::plan::{Simulation, Wanted, auto, simulate};
use pipewright::schedule::{LinkKind, Schedule};

/// Ranks, micro-batches; forward, backward-input, backward-weight and transfer in ms.
const TIMES: [(u32, u32, [f64; 4]); 12] = [
    (8, 24, [18.522, 18.086, 9.337, 0.601]),
    (8, 32, [18.513, 18.086, 9.331, 0.626]),
    (8, 64, [18.546, 18.097, 9.321, 0.762]),
    (8, 24, [29.718, 29.444, 19.927, 0.527]),
    (8, 32, [29.802, 29.428, 19.530, 0.577]),
    (8, 64, [29.935, 29.621, 19.388, 0.535]),
    (16, 48, [11.347, 11.248, 8.132, 0.377]),
    (16, 64, [11.307, 11.254, 8.101, 0.379]),
    (16, 128, [11.325, 11.308, 8.109, 0.378]),
    (32, 96, [10.419, 10.207, 7.715, 0.408]),
    (32, 128, [10.408, 10.204, 7.703, 0.408]),
    (32, 256, [10.402, 10.248, 7.698, 0.460]),
];

/// A schedule of ours, and the published rates of its counterpart at the times above, as far as they are
/// known.
const PUBLISHED: [(&str, &[f64]); 6] = [
    (
        "1f1b",
        &[0.2431, 0.1985, 0.1240, 0.2347, 0.1898, 0.1091, 0.2552, 0.2082, 0.1251, 0.2646, 0.2168, 0.1352],
    ),
    (
        "zb-h1",
        &[0.1585, 0.1242, 0.0674, 0.1323, 0.1045, 0.0554, 0.1397, 0.1088, 0.0576, 0.1421, 0.1106, 0.0594],
    ),
    (
        "zb-2p",
        &[0.0433, 0.0039, 0.0026, 0.0029, 0.0022, 0.0010, 0.0066, 0.0054, 0.0028, 0.0038, 0.0029, 0.0018],
    ),
    ("zb-v", &[0.0703, 0.0543, 0.0298, 0.0403, 0.0326, 0.0166]),
    ("v-half", &[0.1702, 0.1339, 0.0737, 0.1447, 0.1145, 0.0607]),
    ("v-min", &[0.3353, 0.3103, 0.2758, 0.2721, 0.2496, 0.2013]),
];

fn main() -> pipewright::Result<()> {
    println!("| p | m | {} | auto, 2 chunks, memory p |", PUBLISHED.map(|(name, _)| name).join(" | "));
    println!("| --- | --- |{}", " --- |".repeat(PUBLISHED.len() + 1));
    for (setting, (ranks, micro_batches, times)) in TIMES.into_iter().enumerate() {
        let [forward, backward_input, backward_weight, comm] = times;
        let share = StageCost { forward, backward_input, backward_weight, ..StageCost::default() };
        let costs = Costs::share(share, comm)?;
        let mut cells = vec![ranks.to_string(), micro_batches.to_string()];
        for (name, published) in PUBLISHED {
            let schedule = Schedule::make(name, ranks, None, micro_batches, &costs)?;
            let ours = simulate(&schedule, &costs, LinkKind::Buffered)?;
            cells.push(cell(&ours, published.get(setting)));
        }
        let chosen = auto(&Wanted {
            ranks,
            chunks: Some(2),
            micro_batches,
            costs: &costs,
            memory: Some(f64::from(ranks)),
            links: LinkKind::Buffered,
            goal: Goal::Span,
        })?;
        cells.push(cell(&chosen.simulation, None));
        println!("| {} |", cells.join(" | "));
    }
    Ok(())
}

/// Our rate, the published rate, and the most activations that a rank holds.
fn cell(ours: &Simulation, published: Option<&f64>) -> String {
    let held = ours.ranks.iter().map(|rank| rank.peak_activations).fold(0.0, f64::max);
    let published = published.map_or(String::new(), |rate| format!(" ({rate:.4})"));
    format!("{:.4}{published}, {held}", ours.bubble_span)
}
