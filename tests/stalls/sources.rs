//! Data sources that hang.

use pipewright::data::Fingerprint;

use super::*;

/// Ones, but the second micro-batch of these steps waits at a gate.
struct Hanging {
    from: u64,
    gate: Arc<Mutex<Receiver<()>>>,
    is_endless: bool,
}

impl DataSource for Hanging {
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> pipewright::Result<(Tensor, Tensor)> {
        if step >= self.from && micro_batch.0 == 1 {
            wait_at(&self.gate);
        }
        Ones.micro_batch(step, micro_batch)
    }

    fn shapes(&self) -> (Shape, Shape) {
        Ones.shapes()
    }

    fn fingerprint(&self) -> pipewright::Result<Fingerprint> {
        Ones.fingerprint()
    }

    fn describe(&self) -> String {
        "the file on the slow disk".to_owned()
    }

    fn is_endless(&self) -> bool {
        self.is_endless
    }
}

#[test]
fn a_data_source_that_hangs_is_named_with_the_micro_batch_and_the_drop_returns() {
    let (open, gate) = gate();
    let data = Hanging { from: 1, gate, is_endless: false };
    let builder = pipeline(gated(2, |_, _| {})).data(Arc::new(data));
    let mut pipeline = builder.stall_limit(Some(SOON)).launch().expect("it starts");
    pipeline.step().expect("the gate is open");
    let error = pipeline.step().expect_err("the source hangs").to_string();
    assert!(
        timeless(&error).starts_with(
            "a stall of N s: rank 0 has waited for micro-batch 1 of step 1 of the data for N s, in 0F1 \
             (stage 0, layer h.0): its source, the file on the slow disk, does not give it; rank 1 has "
        ),
        "{error}"
    );
    drop(pipeline);
    drop(open);
}

#[test]
fn a_source_that_hangs_in_an_evaluation_is_named() {
    let (open, gate) = gate();
    let source = Hanging { from: 0, gate, is_endless: false };
    let builder = pipeline(gated(2, |_, _| {})).stall_limit(Some(SOON));
    let mut pipeline = builder.launch().expect("it starts");
    let error = pipeline.evaluate(Arc::new(source), 2).expect_err("it hangs");
    has(
        &error,
        &[
            "waited for micro-batch 1 of step 0 of the data",
            "its source, the file on the slow disk, does not give it",
        ],
    );
    drop(pipeline);
    drop(open);
}

#[test]
fn a_source_that_hangs_while_it_is_read_ahead_does_not_hold_up_the_drop() {
    let (open, gate) = gate();
    let data = Hanging { from: 1, gate, is_endless: true };
    let builder = pipeline(gated(2, |_, _| {})).data(Arc::new(data));
    let mut pipeline = builder.launch().expect("it starts");
    pipeline.step().expect("the data of step 0 is there");
    drop(pipeline);
    drop(open);
}

#[test]
fn a_thread_of_the_caller_that_hangs_in_a_checkpoint_is_told() {
    let (open, gate) = gate();
    let saves = Arc::new(AtomicBool::new(false));
    let data = Late::new(Arc::clone(&saves), gate);
    let (builder, stalls) = heard(pipeline(gated(2, |_, _| {})).data(Arc::new(data)));
    let mut pipeline = builder.launch().expect("it starts");
    pipeline.step().expect("it trains");
    saves.store(true, Ordering::SeqCst);
    let folder = tempfile::tempdir().expect("a folder");
    thread::scope(|scope| {
        let save = scope.spawn(|| pipeline.save(folder.path().join("saved")));
        assert_eq!(
            timeless(&next(&stalls).to_string()),
            "process 0 (ranks 0 to 1) has been at `ending a checkpoint` for N s"
        );
        drop(open);
        save.join().expect("no panic").expect("it goes on");
    });
    assert!(matches!(next(&stalls), Stall::Over { .. }));
}

#[test]
fn a_thread_that_hangs_in_a_checkpoint_beside_the_steps_does_not_hold_up_the_drop_for_ever() {
    let (open, gate) = gate();
    let saves = Arc::new(AtomicBool::new(false));
    let data = Late::new(Arc::clone(&saves), gate);
    let (builder, stalls) = heard(pipeline(gated(2, |_, _| {})).data(Arc::new(data)));
    let mut pipeline = builder.stall_limit(Some(4 * SOON)).launch().expect("it starts");
    pipeline.step().expect("it trains");
    saves.store(true, Ordering::SeqCst);
    let folder = tempfile::tempdir().expect("a folder");
    pipeline.save_beside(folder.path().join("saved")).expect("it is copied");
    pipeline.step().expect("it trains beside");
    drop(pipeline);
    assert_eq!(
        timeless(&next(&stalls).to_string()),
        "process 0 (ranks 0 to 1) has been at `ending a checkpoint` for N s"
    );
    drop(open);
}

/// Ones. Their fingerprint waits at a gate while a checkpoint is saved.
pub(super) struct Late {
    saves: Arc<AtomicBool>,
    gate: Arc<Mutex<Receiver<()>>>,
}

impl Late {
    pub(super) fn new(saves: Arc<AtomicBool>, gate: Arc<Mutex<Receiver<()>>>) -> Self {
        Self { saves, gate }
    }
}

impl DataSource for Late {
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> pipewright::Result<(Tensor, Tensor)> {
        Ones.micro_batch(step, micro_batch)
    }

    fn shapes(&self) -> (Shape, Shape) {
        Ones.shapes()
    }

    fn fingerprint(&self) -> pipewright::Result<Fingerprint> {
        if self.saves.load(Ordering::SeqCst) {
            wait_at(&self.gate);
        }
        Ones.fingerprint()
    }
}
