//! What is planned for a config: its cut and its schedule.

use pipewright::checksum::Checksum;
use pipewright::id::Rank;
use pipewright::plan::{Cluster, ModelCosts, Prediction, Replicas};

/// How a config's model is cut, and in which order its passes run.
#[derive(Clone, Debug)]
pub struct PipelinePlan {
    /// How many layers each stage has.
    pub counts: Vec<usize>,
    /// The replicas of the pipeline, each with its schedule exactly as it runs: with weight gradients in
    /// turn, with reductions if there are several, and with what is offloaded.
    pub replicas: Replicas,
    /// What the layers cost, if a file says so. Replicas are on one host.
    pub costs: Option<ModelCosts>,
    /// The same by any schedule of as many ranks.
    pub costs_by_any: Option<ModelCosts>,
    /// What messages cost, if that file says so.
    pub cluster: Option<Cluster>,
    /// The tokens of a mean micro-batch, where micro-batches differ, if that file says so.
    pub tokens: Option<f64>,
    /// The prediction of a step in seconds and bytes, if the costs are known.
    pub prediction: Option<Prediction>,
    /// What `auto` chose, and why. `None` for other schedules.
    pub why: Option<String>,
    /// Warnings: that the costs were measured under other conditions, that replicas have unequal shares.
    pub warnings: Vec<String>,
}

impl PipelinePlan {
    /// A cut and the schedules of replicas. Nothing else is known of them.
    pub fn of(counts: Vec<usize>, replicas: Replicas) -> Self {
        Self {
            counts,
            replicas,
            costs: None,
            costs_by_any: None,
            cluster: None,
            tokens: None,
            prediction: None,
            why: None,
            warnings: Vec::new(),
        }
    }

    /// What must be equal in all processes of a run, besides the config's text: the files that it names may
    /// differ between machines. One line each for the costs, the cut, and the order of each rank. Costs and
    /// orders are checksums.
    pub fn in_common(&self) -> String {
        let costs = self.costs.as_ref().map_or("none".to_owned(), |costs| {
            // Debug prints the shortest text that reads back as the same number. So equal texts mean equal
            // numbers.
            Checksum::of(format!("{costs:?}").as_bytes()).to_string()
        });
        let mut text = format!(
            "[plan]\ncosts = {costs}\nlayers of each stage = {:?}\nplacement = {}\n",
            self.counts,
            self.replicas.largest().placement()
        );
        for (schedule, _) in self.replicas.schedules() {
            let whose = match self.replicas.count() {
                1 => String::new(),
                _ => format!(" with {} micro-batches", schedule.micro_batches()),
            };
            for rank in (0..schedule.ranks()).map(Rank) {
                text += &format!("order of rank {rank}{whose} = {}\n", schedule.checksum(rank));
            }
        }
        text
    }
}
