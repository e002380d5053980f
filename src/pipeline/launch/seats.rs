//! What each of this process's ranks has for itself: its end, stages, data and loss.

use pipewright_stages::Stage;

use super::duties::duties;
use crate::actor::Ranks;
use crate::data::Loader;
use crate::error::Result;
use crate::fabric::{Recorded, Transport};
use crate::pipeline::spec::{Ends, Spec};
use crate::worker::{Plan, Seat};

/// The seats of this process's ranks, and the loaders of their data.
pub(super) fn seats<S: Stage>(
    spec: &Spec<S>,
    plan: &Plan,
    ranks: &Ranks<S>,
    ends: Ends<S::Wire>,
) -> Result<(Vec<Loader>, Vec<Seat<S>>)> {
    let (loaders, duties) = duties(plan, &spec.stages, ends.iter().map(|end| end.rank()))?;
    let loss = spec.loss.as_ref().expect("checked: there is a loss");
    let seat = |(transport, duty): (Box<dyn Transport<S::Wire> + Send>, _)| Seat {
        progress: ranks.progress(transport.rank()),
        transport: match spec.copy {
            Some(copy) => Box::new(Recorded::new(transport, copy)),
            None => transport,
        },
        loss: loss(),
        duty,
    };
    Ok((loaders, ends.into_iter().zip(duties).map(seat).collect()))
}
