//! Work on the parameters of a GPU that is launched together.

use crate::cuda;
use crate::error::Result;
use crate::parameter::Parameter;
use crate::stage::Stage;

/// Work on several parameters of a GPU that waits, so that a launch does it for many of them. A model has
/// many small parameters, and a launch for each would take longer than their work.
///
/// At most one piece of work waits for each parameter: before a second one, all that waits is launched. What
/// is never [launched](Together::launch) is never done. On the CPU nothing waits. What is used for every step
/// allocates in the first steps only.
#[derive(Debug, Default)]
pub struct Together(pub(crate) cuda::Together);

impl Together {
    /// Does something, and launches what it leaves waiting.
    ///
    /// # Errors
    /// The error of `act`; or when the GPU reports an error, of this call or of earlier work.
    pub fn now(act: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let mut together = Self::default();
        act(&mut together)?;
        together.launch()
    }

    /// Does something with each parameter of a stage, in the order of [`Stage::visit_parameters`], and
    /// launches what it leaves waiting. If it fails, that is forgotten.
    ///
    /// # Errors
    /// The first error of `act`; or when the GPU reports an error, of this call or of earlier work.
    pub fn visit<S: Stage + ?Sized>(
        &mut self,
        stage: &mut S,
        mut act: impl FnMut(&mut Parameter, &mut Self) -> Result<()>,
    ) -> Result<()> {
        match stage.try_visit_parameters(&mut |parameter| act(parameter, self)) {
            Ok(()) => self.launch(),
            Err(error) => {
                self.0.forget();
                Err(error)
            }
        }
    }

    /// Launches all that waits.
    ///
    /// # Errors
    /// When the GPU reports an error, of this call or of earlier work.
    pub fn launch(&mut self) -> Result<()> {
        self.0.launch()
    }
}
