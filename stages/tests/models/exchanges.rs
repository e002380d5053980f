//! What shards give each other is what the sizes of units say.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use parking_lot::Mutex as Lock;
use pipewright_stages::layers::{Heads, Rope, RopeLayout, RopeScaling, Routing};
use pipewright_stages::models::{Exchanges, Gpt, Llama, Mlp, Model};
use pipewright_stages::{
    Bytes, DType, Exchange, ForwardContext, Kind, Mode, Place, Result, Shard, Stage, Team, Tensor,
};

const ROWS: [usize; 2] = [2, 16];
const VOCAB: usize = 32;

/// Tensors on their way to one of two shards.
#[derive(Default)]
struct Way {
    tensors: Mutex<VecDeque<Tensor>>,
    news: Condvar,
}

/// One of two shards. Counts what it sends: messages, and bytes.
struct Counting {
    to: Arc<Way>,
    from: Arc<Way>,
    sent: Arc<Lock<[f64; 2]>>,
}

impl Exchange for Counting {
    fn send(&mut self, _shard: u32, tensor: Tensor) -> Result<()> {
        let mut sent = self.sent.lock();
        sent[0] += 1.0;
        sent[1] += tensor.bytes() as f64;
        self.to.tensors.lock().expect("no panic").push_back(tensor);
        self.to.news.notify_one();
        Ok(())
    }

    fn receive(&mut self, _shard: u32) -> Result<Tensor> {
        let mut tensors = self.from.tensors.lock().expect("no panic");
        loop {
            match tensors.pop_front() {
                Some(tensor) => return Ok(tensor),
                None => tensors = self.from.news.wait(tensors).expect("no panic"),
            }
        }
    }
}

/// Runs the three passes of each unit as a stage on one shard. Returns what it sent in each.
fn passes(model: Model, input: Tensor, index: u32, ways: [Arc<Way>; 2], dtype: DType) -> Vec<[[f64; 2]; 3]> {
    let sent = Arc::new(Lock::new([0.0; 2]));
    let [to, from] = ways;
    let exchange = Counting { to, from, sent: Arc::clone(&sent) };
    let shard = Shard { index, of: 2 };
    let outer = if input.shape().kind() == Kind::Ids { input.dims() } else { &input.dims()[..1] };
    let team = Team::new(shard, outer, Arc::new(Lock::new(exchange))).expect("there are enough rows");
    let counts = vec![1; model.names().len()];
    let take = || std::mem::take(&mut *sent.lock());
    let mut wire = input;
    let mut units = Vec::new();
    for builder in model.cut(&counts).expect("a unit each") {
        let mut stage = builder.build_shard(shard).expect("it is divided");
        stage.move_to(Place { dtype, ..Place::default() }).expect("on the CPU");
        stage.join(&team).expect("it is divided");
        wire = stage.load(wire).expect("a tensor");
        let at = ForwardContext { step: 0, micro_batch: 0, mode: Mode::Train };
        let (output, saved) = stage.forward(at, wire).expect("it computes");
        let forward = take();
        let (_, pending) = stage.backward_input(saved, output.clone()).expect("it computes");
        let input = take();
        stage.backward_weight(pending).expect("it computes");
        units.push([forward, input, take()]);
        wire = output;
    }
    units
}

/// Messages and bytes of a pass, by the sizes.
fn expected(exchanges: Exchanges, dtype: DType) -> [f64; 2] {
    [exchanges.times as f64, exchanges.bytes(2, dtype.bytes())]
}

type Make = fn() -> Result<Model>;

fn models() -> [(&'static str, Make); 4] {
    fn llama(experts: Option<Routing>) -> Llama {
        Llama {
            vocab: VOCAB,
            dim: 16,
            layers: 1,
            heads: Heads { query: 4, key_value: 2, width: 4 },
            ffn: 24,
            context: 16,
            rope: Rope { theta: 10_000.0, scaling: RopeScaling::None, layout: RopeLayout::Halves },
            epsilon: 1e-5,
            tied: false,
            padding: None,
            bias: true,
            head_norms: true,
            window: None,
            experts,
            seed: 4,
        }
    }
    let gpt = || {
        Gpt { vocab: VOCAB, dim: 16, layers: 1, heads: 4, context: 16, dropout: 0.1, tied: true, seed: 3 }
            .model()
    };
    [
        ("gpt", gpt),
        ("llama", || llama(None).model()),
        ("mlp", || Mlp { sizes: vec![24, 16, 8, 4], dropout: 0.1, seed: 1 }.model()),
        ("mixtral", || llama(Some(Routing { experts: 4, chosen: 2, auxiliary: 0.01 })).model()),
    ]
}

#[test]
fn shards_give_each_other_what_the_sizes_of_units_say() {
    for (name, make) in models() {
        for dtype in [DType::F32, DType::Bf16] {
            let model = move || make().and_then(|model| model.with_shard_groups(2)).expect("possible sizes");
            let rows = ROWS.iter().product();
            let ids = (0..rows as u32).map(|id| id * 7 % VOCAB as u32).collect();
            let input = match name {
                "mlp" => Tensor::zeros(&[rows, 24]),
                _ => Tensor::from_ids(&ROWS, ids).expect("ids"),
            };
            let sizes = model().unit_sizes(rows, input.shape().count(), true).expect("known parts");
            let ways = [(); 2].map(|()| Arc::<Way>::default());
            let other = [Arc::clone(&ways[1]), Arc::clone(&ways[0])];
            let copy = input.clone();
            let second = thread::spawn(move || passes(model(), copy, 1, other, dtype));
            let first = passes(model(), input, 0, ways, dtype);
            let second = second.join().expect("no panic");
            for ((one, two), (sizes, unit)) in
                first.iter().zip(&second).zip(sizes.iter().zip(model().names()))
            {
                for (pass, exchanges) in sizes.exchanges.into_iter().enumerate() {
                    let [times, bytes] = expected(exchanges, dtype);
                    let what = format!("{name}, {unit}, pass {pass}, {dtype}");
                    assert_eq!([one[pass][0], two[pass][0]], [times; 2], "messages of {what}");
                    // Rows of experts, and vectors of tokens, come in sizes of which there are few.
                    let sent = (one[pass][1] + two[pass][1]) / 2.0;
                    assert!(sent >= 0.99 * bytes && sent <= 1.5 * bytes, "{sent} bytes, not {bytes}: {what}");
                }
            }
        }
    }
}
