//! The predicted and the measured time of a step.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::pipeline::StepReport;
use crate::plan::{Costs, median};
use crate::plan::{Prediction, period, simulate};
use crate::schedule::{LinkKind, Schedule, Timeline};

/// Steps that do not count: memory is touched for the first time, and caches are cold.
const WARM_UP: u64 = 1;

/// Steps from whose passes the costs are taken, if no file gives them.
const TRACED: u64 = 3;

/// The number of newest steps over which the median is taken.
const KEPT: usize = 100;

/// Predicts the time and the bubble of a step, and compares them with the measured ones.
#[derive(Debug, Default)]
pub struct Forecast {
    predicted: Option<StepTime>,
    steps: u64,
    traced: Vec<(StepReport, Timeline)>,
    /// Seconds and bubble.
    measured: VecDeque<(f64, f64)>,
}

/// How long a step takes, and how much of it is bubble.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StepTime {
    /// Seconds.
    pub seconds: f64,
    /// The idle share, averaged over the ranks.
    pub bubble: f64,
}

/// The predicted and the measured time of a run's steps.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ForecastReport {
    /// The prediction.
    pub predicted: StepTime,
    /// The medians of the newest steps.
    pub measured: StepTime,
}

impl Forecast {
    /// A prediction from the passes of the first steps, which are traced.
    pub fn by_passes() -> Self {
        Self::default()
    }

    /// A prediction from a simulation with the layers' costs.
    pub fn by_costs(prediction: &Prediction) -> Self {
        let Prediction { step, bubble, .. } = *prediction;
        let seconds = step;
        Self { predicted: Some(StepTime { seconds, bubble }), ..Self::default() }
    }

    /// The prediction, if there is one already.
    pub fn predicted(&self) -> Option<StepTime> {
        self.predicted
    }

    /// Whether the next step's passes are needed.
    pub(super) fn wants_trace(&self) -> bool {
        self.predicted.is_none() && self.steps >= WARM_UP
    }

    /// Adds a step of replicas with these schedules. Returns a prediction once there are enough passes for
    /// one.
    pub(super) fn add(
        &mut self,
        (schedules, barrier): (&[Arc<Schedule>], bool),
        report: &StepReport,
        timeline: Option<Timeline>,
    ) -> Result<Option<StepTime>> {
        self.steps += 1;
        if self.steps > WARM_UP {
            if self.measured.len() == KEPT {
                self.measured.pop_front();
            }
            self.measured.push_back((report.seconds, report.bubble()));
        }
        self.traced.extend(timeline.map(|timeline| (report.clone(), timeline)));
        if self.predicted.is_some() || (self.traced.len() as u64) < TRACED {
            return Ok(None);
        }
        self.predicted = Some(predict((schedules, barrier), &std::mem::take(&mut self.traced))?);
        Ok(self.predicted)
    }

    /// The prediction and the measured values.
    pub(super) fn result(&self) -> Option<ForecastReport> {
        let predicted = self.predicted?;
        let middle = |part: fn(&(f64, f64)) -> f64| median(self.measured.iter().map(part));
        let (seconds, bubble) = (middle(|step| step.0)?, middle(|step| step.1)?);
        let measured = StepTime { seconds, bubble };
        Some(ForecastReport { predicted, measured })
    }
}

impl fmt::Display for StepTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {:.4} s, bubble {:.1} %", self.seconds, 100.0 * self.bubble)
    }
}

impl fmt::Display for ForecastReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "predicted {}; measured {}", self.predicted, self.measured)
    }
}

/// The simulated step of these replicas, if every pass and the end of the step take their median times.
/// Traced steps have a barrier.
fn predict(
    (schedules, barrier): (&[Arc<Schedule>], bool),
    steps: &[(StepReport, Timeline)],
) -> Result<StepTime> {
    let costs = Costs::measured(steps.iter().map(|(_, timeline)| timeline))?;
    let (mut makespan, passes) = simulated(schedules, &costs)?;
    if let ([only], false) = (schedules, barrier) {
        makespan = makespan.min(period(only, &costs, LinkKind::Buffered)?);
    }
    let end = |(report, timeline): &(StepReport, Timeline)| {
        let ends = timeline.ranks.iter().flatten().map(|timed| timed.end);
        (report.seconds - ends.fold(0.0, f64::max)).max(0.0)
    };
    let beside = |(report, timeline): &(StepReport, Timeline)| {
        let busy: f64 = report.ranks.iter().map(|rank| rank.busy).sum();
        let passes = timeline.ranks.iter().flatten().map(|timed| timed.end - timed.start);
        let [reported, traced] = [report.ranks.len(), timeline.ranks.len()].map(|ranks| ranks as f64);
        (busy / reported - (passes.sum::<f64>() / traced - for_shards(timeline))).max(0.0)
    };
    let step = makespan + median(steps.iter().map(end)).unwrap_or(0.0);
    // A pass contains the waits for other shards.
    let at_work = |(_, timeline): &(StepReport, Timeline)| {
        let passes = timeline.ranks.iter().flatten().map(|timed| timed.end - timed.start);
        let passes = passes.sum::<f64>() / timeline.ranks.len() as f64;
        if passes > 0.0 { (1.0 - for_shards(timeline) / passes).max(0.0) } else { 1.0 }
    };
    let at_work = median(steps.iter().map(at_work)).unwrap_or(1.0);
    let busy = passes * at_work + median(steps.iter().map(beside)).unwrap_or(0.0);
    Ok(StepTime { seconds: step, bubble: (1.0 - busy / step).max(0.0) })
}

/// For how long a rank waits for other shards in its passes, on average.
fn for_shards(timeline: &Timeline) -> f64 {
    let waits = timeline.shard_waits.iter().map(|wait| wait.end - wait.start);
    waits.sum::<f64>() / timeline.ranks.len() as f64
}

/// The longest makespan of these replicas, and the time of passes, averaged over all of their ranks.
fn simulated(schedules: &[Arc<Schedule>], costs: &Costs) -> Result<(f64, f64)> {
    let mut different: Vec<(&Schedule, usize)> = Vec::new();
    for schedule in schedules {
        match different.iter_mut().find(|(known, _)| *known == schedule.as_ref()) {
            Some((_, count)) => *count += 1,
            None => different.push((schedule, 1)),
        }
    }
    let (mut makespan, mut busy, mut ranks) = (0.0, 0.0, 0);
    for (schedule, count) in different {
        let simulation = simulate(schedule, costs, LinkKind::Buffered)?;
        makespan = f64::max(makespan, simulation.makespan);
        busy += count as f64 * simulation.ranks.iter().map(|rank| rank.busy).sum::<f64>();
        ranks += count * simulation.ranks.len();
    }
    Ok((makespan, busy / ranks as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Rank;
    use crate::schedule::TimedShardWait;
    use crate::worker::RankReport;

    /// A traced step of two passes for each micro-batch. One of them waits very long for another shard.
    fn traced(schedule: &Schedule, slow: usize) -> (StepReport, Timeline) {
        let mut timeline = schedule.timeline(&Costs::default(), LinkKind::Buffered).expect("it ends");
        let (mut at, passes) = (0.0, &mut timeline.ranks[0]);
        for (number, timed) in passes.iter_mut().enumerate() {
            let lasts = if number == slow { 100.0 } else { 1.0 };
            (timed.start, timed.end) = (at, at + lasts);
            if number == slow {
                let (start, end) = (at + 1.0, at + lasts);
                timeline.shard_waits.push(TimedShardWait { rank: Rank(0), shard: 1, start, end });
            }
            at += lasts;
        }
        let busy = passes.len() as f64;
        let report = StepReport {
            step: 0,
            loss_step: 0,
            loss: 0.0,
            metrics: Default::default(),
            grad_norm: 0.0,
            learning_rate: 0.0,
            weight: 1.0,
            seconds: at,
            ranks: vec![RankReport { busy, ..RankReport::default() }],
            taken_back: false,
            restarts: Vec::new(),
        };
        (report, timeline)
    }

    /// In each step another pass waits, so no median of a pass has a wait, but the median of the waits is
    /// longer than all passes. The bubble was 117 %.
    #[test]
    fn long_waits_for_shards_are_no_bubble_of_more_than_all_of_a_step() {
        let schedule = Arc::new(Schedule::one_f_one_b(1, 4).expect("it fits"));
        let steps: Vec<_> = (0..3).map(|slow| traced(&schedule, slow)).collect();
        let predicted = predict((&[schedule], true), &steps).expect("it is simulated");
        assert!((0.0..=1.0).contains(&predicted.bubble), "{predicted:?}");
        assert!(predicted.bubble > 0.5, "{predicted:?}");
    }
}
