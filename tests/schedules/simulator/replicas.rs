//! Compares steps of several replicas with the oracle's clock, on random schedules with random costs.

use pipewright::plan::Exposed;

use super::clock::{Clock, Times, together};
use super::{cost, stage_cost};
use crate::*;

/// Replicas with random schedules and costs.
#[derive(Clone, Debug)]
struct Case {
    replicas: Replicas,
    stages: Vec<StageCost>,
    comm: f64,
    work: Vec<f64>,
}

impl Case {
    fn costs(&self) -> Costs {
        Costs::each(self.stages.clone(), self.comm).unwrap().uneven(self.work.clone()).unwrap()
    }

    fn clock(&self, replica: u32, links: LinkKind) -> Clock<'_> {
        let schedule = self.replicas.schedule(replica);
        Clock { schedule, costs: &self.stages, work: &self.work, comm: self.comm, links }
    }

    /// The times of each replica, by the oracle.
    fn times(&self, links: LinkKind) -> Option<Vec<Times>> {
        let clocks: Vec<_> = (0..self.replicas.count()).map(|replica| self.clock(replica, links)).collect();
        together(&clocks)
    }

    /// When the step of all replicas ends, by these times: the last pass or reduction, and then the longest
    /// update of a rank.
    fn step(&self, times: &[Times]) -> f64 {
        let ends = times.iter().flat_map(|times| times.iter());
        let ends = ends.filter(|(action, _)| !matches!(action, Action::Send(..)));
        let end = ends.map(|(_, &(_, end))| end).fold(0.0, f64::max);
        let placement = self.replicas.largest().placement();
        let updates = (0..self.replicas.ranks()).map(|rank| {
            let stages = placement.stages_on(Rank(rank)).map(|stage| self.stages[stage.index()]);
            stages.map(|cost| cost.update + cost.gather).sum::<f64>()
        });
        end + updates.fold(0.0, f64::max)
    }
}

prop_compose! {
    fn case()(
        sizes in (1_u32..4, 0_u32..3, 1_u32..8, 1_u32..6),
        stages in proptest::collection::vec(stage_cost(), 6),
        comm in cost(),
        work in proptest::collection::vec(0.2..4.0f64, 1..9),
        draws in proptest::collection::vec(any::<Index>(), 64),
    ) -> Case {
        let (ranks, more, micro_batches, count) = sizes;
        let mut draws = draws.iter().cycle();
        let mut pick = |count: usize| draws.next().unwrap().index(count.max(1));
        let placement = random_placement(ranks, ranks + more, &mut pick);
        let groups = GradientGroups::new(micro_batches, 8);
        let replicas = Replicas::new(groups, count, |share| {
            let rows = random_rows(&placement, share, &mut pick);
            Schedule::from_passes("random", placement.clone(), share, rows)
        });
        let stages = stages[..placement.stages() as usize].to_vec();
        Case { replicas: replicas.unwrap(), stages, comm, work }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_replica_has_the_times_that_the_oracle_gives_it(case in case()) {
        for links in [LinkKind::Buffered, LinkKind::Ordered] {
            let ours = Prediction::of_replicas(&case.replicas, &case.costs(), links);
            let Some(times) = case.times(links) else {
                prop_assert_eq!(links, LinkKind::Ordered);
                let refused = ours.unwrap_err().to_string();
                prop_assert!(refused.contains("replicas wait for each other for ever"), "{}", refused);
                continue;
            };
            prop_assert!(close(ours.unwrap().step, case.step(&times)));
            for (replica, times) in (0..case.replicas.count()).zip(&times) {
                let timeline = case.replicas.timeline(replica, &case.costs(), links).unwrap();
                let first = case.replicas.share(replica).start;
                let own = |cell: Cell| Cell::new(cell.stage.0, cell.micro_batch.0 - first);
                let passes = timeline.ranks.iter().flatten();
                let passes = passes.map(|pass| {
                    (Action::Compute(pass.pass, own(pass.cell)), (pass.start, pass.end))
                });
                let sent = timeline.transfers.iter();
                let sent = sent.map(|one| (Action::Send(one.flow, own(one.cell)), (one.start, one.end)));
                let reduced = timeline.reductions.iter();
                let reduced = reduced.map(|one| (Action::Reduce(one.stage), (one.start, one.end)));
                let ours: Times = passes.chain(sent).chain(reduced).collect();
                prop_assert!(ours.keys().eq(times.keys()), "{:?} {:?}", ours, times);
                for (action, (start, end)) in &ours {
                    let theirs = times[action];
                    prop_assert!(close(*start, theirs.0) && close(*end, theirs.1), "{} {:?}", action, theirs);
                }
            }
        }
    }

    #[test]
    fn what_is_exposed_is_no_more_than_what_is_idle_and_goes_away_with_its_cost(case in case()) {
        let (links, costs) = (LinkKind::Buffered, case.costs());
        let prediction = Prediction::of_replicas(&case.replicas, &costs, links).unwrap();
        let exposed = Exposed::of(&case.replicas, &costs, links).unwrap();
        let idle = prediction.bubble * prediction.step;
        for (time, free) in [
            (exposed.reductions, costs.clone().without_reductions()),
            (exposed.transfers, costs.clone().without_transfers()),
        ] {
            prop_assert!((0.0..=idle * (1.0 + 1e-9) + 1e-9).contains(&time), "{} of {}", time, idle);
            let step = Prediction::of_replicas(&case.replicas, &free, links).unwrap().step;
            prop_assert!(close(step + time, prediction.step));
        }
        let free = costs.without_reductions().without_transfers();
        let nothing = Exposed::of(&case.replicas, &free, links).unwrap();
        prop_assert_eq!(nothing, Exposed::default());
    }
}
