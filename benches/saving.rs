//! How long the steps stand still for a checkpoint, and what it costs while it is written.
//!
//!     cargo bench --bench saving -- [CONFIG [ROUNDS]]
//!
//! Without a config: size B of `compare_torch`, in two stages. In each round, in turn: steps that save
//! nothing, a checkpoint beside as many steps, and a checkpoint that the steps wait for.

use std::path::{Path, PathBuf};
use std::time::Instant;

use pipewright::stages::{RecomputedStage, Sequential};
use pipewright::{Pipeline, Result};
use pipewright_cli::compose;
use pipewright_cli::config::Config;

/// Size B.
const B: &str = "
[model]
vocab = 256
dim = 512
layers = 8
heads = 8
context = 256
dropout = 0.0
tied = false
[data]
kind = 'text'
path = 'builtin:shakespeare'
seq = 256
[pipeline]
stages = 2
schedule = '1f1b'
micro_batches = 8
micro_batch_size = 2
";

/// Steps that are measured in a row.
const STEPS: usize = 4;

/// The seconds of a call.
fn timed<T>(call: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
    let started = Instant::now();
    let result = call()?;
    Ok((started.elapsed().as_secs_f64(), result))
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

/// What the rounds have measured, in seconds.
#[derive(Default)]
struct Measured {
    plain: Vec<f64>,
    /// Steps that begin when a checkpoint is copied.
    beside: Vec<f64>,
    stalls: Vec<f64>,
    until_saved: Vec<f64>,
    whole: Vec<f64>,
}

impl Measured {
    fn round(&mut self, pipeline: &mut Pipeline<RecomputedStage<Sequential>>, folder: &Path) -> Result<()> {
        let steps = |pipeline: &mut Pipeline<_>| -> Result<f64> {
            let (seconds, _) = timed(|| (0..STEPS).try_for_each(|_| pipeline.step().map(drop)))?;
            Ok(seconds / STEPS as f64)
        };
        self.plain.push(steps(pipeline)?);
        self.stalls.push(timed(|| pipeline.save_beside(folder.join("beside")))?.0);
        self.beside.push(steps(pipeline)?);
        pipeline.wait_until_saved()?;
        let until_saved = timed(|| {
            pipeline.save_beside(folder.join("beside"))?;
            pipeline.wait_until_saved()
        });
        self.until_saved.push(until_saved?.0);
        self.whole.push(timed(|| pipeline.save(folder.join("whole")))?.0);
        Ok(())
    }

    fn print(self, first: f64) {
        let share = |seconds: f64, of: f64| format!("{:.2} % of a step", 100.0 * seconds / of);
        let step = median(self.plain);
        let (stall, beside) = (median(self.stalls), median(self.beside));
        println!("a step without saving        {step:>8.4} s");
        println!("a step while one is written  {beside:>8.4} s  {}", share(beside - step, step));
        println!("the first copy               {first:>8.4} s  {}", share(first, step));
        println!("a copy                       {stall:>8.4} s  {}", share(stall, step));
        println!("copied and written, no steps {:>8.4} s", median(self.until_saved));
        let whole = median(self.whole);
        println!("a save that is waited for    {whole:>8.4} s  {}", share(whole, step));
    }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let config = match arguments.next().map(PathBuf::from) {
        Some(path) => Config::load(&path, &[])?,
        None => Config::parse("size B", B, &[], &[])?,
    };
    let rounds = arguments.next().map_or(5, |rounds| rounds.parse().expect("a number of rounds"));
    let plan = compose::plan(&config)?;
    let data = compose::data(&config)?;
    let mut pipeline = compose::launch(&config, &data, &plan, None)?;
    let folder = tempfile::tempdir_in(".").expect("a folder");
    for _ in 0..STEPS {
        pipeline.step()?;
    }
    let (first, ()) = timed(|| pipeline.save_beside(folder.path().join("beside")))?;
    pipeline.wait_until_saved()?;
    let mut measured = Measured::default();
    for _ in 0..rounds {
        measured.round(&mut pipeline, folder.path())?;
    }
    measured.print(first);
    Ok(())
}
