//! x
use crate::schedule::Timeline;
/// x
pub fn trace_events(_title: &str, _timeline: &Timeline) -> String {
    String::new()
}
