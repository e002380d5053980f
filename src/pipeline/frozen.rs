//! Which stages have no backward.

use crate::id::StageId;
use crate::worker::ParameterInfo;

/// The first stage that is trained: those before it have parameters, and all of them are frozen. It is the
/// last stage if all are frozen. `parameters` are in layer order.
pub(super) fn first_trained(parameters: &[ParameterInfo], stages: u32) -> StageId {
    let is_frozen = |stage: &u32| {
        let mut own = parameters
            .iter()
            .filter(|info| info.site.stage == StageId(*stage))
            .peekable();
        own.peek().is_some() && own.all(|info| !info.is_trained)
    };
    let frozen = (0..stages.saturating_sub(1)).take_while(is_frozen);
    StageId(frozen.count() as u32)
}
