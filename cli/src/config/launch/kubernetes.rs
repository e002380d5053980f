//! An indexed Job of Kubernetes, or one of a JobSet.

use super::found::{Launched, Launcher, port};
use super::variables::{Environment, position, text};
use crate::error::Result;

/// What a Job says: the number of its pod. The number of pods has to be written into its description, as
/// `WORLD_SIZE`. Without it, the pods of a Job have nothing to do with each other, and each runs alone.
/// `RANK` comes before the pod's number, because that begins at 0 in each Job of a JobSet. Every pod has
/// addresses of its own, so the port can be the same for all Jobs.
pub(super) fn read(environment: &Environment) -> Result<Option<Launched>> {
    let launcher = Launcher::Kubernetes;
    let [number, _] = launcher.names();
    if text(environment, number).is_none() || text(environment, "RANK").is_some() {
        return Ok(None);
    }
    let Some([process, processes]) = position(environment, launcher.names())? else {
        return Ok(None);
    };
    Ok(Some(Launched { process, processes, launcher, host: None, port: Some(port("")) }))
}
