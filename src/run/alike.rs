//! The settings that must be equal in all processes of a run, besides their pipelines. They are compared when
//! the run begins.

use super::samples::Samples;
use super::settings::Run;

impl Run {
    /// The settings that must be equal, by name. The first difference in this order is reported. `data` is
    /// the data of the validation.
    pub(super) fn in_common(&self, data: Option<&str>) -> Vec<(String, String)> {
        let number = |number: Option<u64>| number.map_or("none".to_owned(), |number| number.to_string());
        let validation = self.validation.as_ref();
        let micro_batches = validation.map(|validation| validation.micro_batches.into());
        let samples = self.samples.as_ref();
        let forecast = match &self.forecast {
            None => "none",
            Some(forecast) if forecast.predicted().is_some() => "by costs",
            Some(_) => "by passes",
        };
        let parts = [
            ("the run directory", self.dir.path().display().to_string()),
            ("what to do with a run that is there", format!("{:?}", self.resume)),
            ("whether other data is allowed", self.allow_other_data.to_string()),
            ("the steps of the run", self.steps.to_string()),
            ("the steps between checkpoints", self.save_every.to_string()),
            ("whether checkpoints are written while steps run", self.save_beside.to_string()),
            ("how many checkpoints are kept", self.keep.to_string()),
            ("the steps between checkpoints that are kept for ever", self.keep_every.to_string()),
            ("the micro-batches of a validation", number(micro_batches)),
            ("the steps between validations", number(validation.map(|validation| validation.every))),
            ("the data of the validation", data.unwrap_or("none").to_owned()),
            ("the steps between samples", number(samples.map(|samples| samples.every))),
            ("the text that is written", samples.map_or("none".to_owned(), Samples::described)),
            ("the steps to trace", number(self.trace)),
            ("the forecast", forecast.to_owned()),
        ];
        parts.map(|(name, value)| (name.to_owned(), value)).into()
    }
}
