//! Times of hot and cold kernels: CPU time of the thread, without the time of other programs on the core.

use cpu_time::ThreadTime;
use pipewright_stages::Result;

/// How many bytes are written to fill every cache: twice the third-level cache.
const FILLER: usize = 64 << 20;

/// One kernel. It uses the clock to time each of its passes, in order.
pub(crate) type Run = Box<dyn FnMut(&mut Clock) -> Result<()>>;

/// Times passes.
pub(crate) struct Clock {
    cold: bool,
    filler: Vec<f32>,
    seconds: Vec<f64>,
}

/// The seconds of every pass.
pub(crate) struct Seconds {
    pub(crate) hot: Vec<f64>,
    pub(crate) cold: Vec<f64>,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { cold: false, filler: vec![0.0; FILLER / size_of::<f32>()], seconds: Vec::new() }
    }

    /// Times one pass.
    pub(crate) fn time<T>(&mut self, pass: impl FnOnce() -> T) -> T {
        if self.cold {
            self.filler.iter_mut().for_each(|number| *number += 1.0);
        }
        let start = ThreadTime::now();
        let output = pass();
        self.seconds.push(start.elapsed().as_secs_f64());
        output
    }

    /// Runs a kernel hot and cold. A first run warms it up.
    pub(crate) fn round(&mut self, run: &mut Run) -> Result<Seconds> {
        self.run(false, run)?;
        Ok(Seconds { hot: self.run(false, run)?, cold: self.run(true, run)? })
    }

    fn run(&mut self, cold: bool, run: &mut Run) -> Result<Vec<f64>> {
        self.cold = cold;
        run(self)?;
        Ok(std::mem::take(&mut self.seconds))
    }
}
