use pipewright_stages::layers::Linear;
use pipewright_stages::*;
use std::time::Instant;
fn main() {
    let only = std::env::args().nth(1);
    for kind in Quantisation::ALL {
        if only.as_ref().is_some_and(|o| format!("{kind:?}") != *o) { continue }
        let sizes = [2048usize, 8192];
        let mut layer = Linear::new("fc", sizes, Init::Zeros, 1).without_bias();
        let bytes = vec![0x23u8; kind.bytes(sizes[0]*sizes[1])];
        let mut m = Quantised::new(sizes[0]); m.push(kind, bytes.into());
        {
            let mut p = layer.parameters();
            p[0].train_by(Training { frozen: true, ..Training::default() });
            starting_at_zero(|| p[0].quantise(kind)).unwrap();
            p[0].hold(m);
        }
        let x = Tensor::from_vec(&[1, 1, sizes[0]], (0..sizes[0]).map(|i| i as f32 * 0.001).collect()).unwrap();
        let mut best = f64::MAX;
        for _ in 0..7 { let t = Instant::now(); let _ = layer.forward_next(0, x.clone()).unwrap(); best = best.min(t.elapsed().as_secs_f64()); }
        let rows = 512;
        let many = Tensor::from_vec(&[1, rows, sizes[0]], (0..rows*sizes[0]).map(|i| (i % 97) as f32 * 0.001).collect()).unwrap();
        let ctx = ForwardContext { step: 0, micro_batch: 0, mode: Mode::Train };
        let mut f = f64::MAX; let mut b = f64::MAX;
        for _ in 0..3 {
            let t = Instant::now(); let (y, k) = layer.forward(ctx, many.clone()).unwrap(); f = f.min(t.elapsed().as_secs_f64());
            let t = Instant::now(); let _ = layer.backward_input(k, y).unwrap(); b = b.min(t.elapsed().as_secs_f64());
        }
        let n = (sizes[0]*sizes[1]) as f64;
        println!("{kind:?}: row {:.2} ms = {:.2} Gnum/s, {:.1} GB/s; 512 rows: fwd {:.1} ms, bwd {:.1} ms", best*1e3, n/best/1e9, kind.bytes(sizes[0]*sizes[1]) as f64/best/1e9, f*1e3, b*1e3);
    }
    let sizes = [2048usize, 8192];
    let mut layer = Linear::new("fc", sizes, Init::Normal(0.1), 1).without_bias();
    let rows = 512;
    let many = Tensor::from_vec(&[1, rows, sizes[0]], (0..rows*sizes[0]).map(|i| (i % 97) as f32 * 0.001).collect()).unwrap();
    let ctx = ForwardContext { step: 0, micro_batch: 0, mode: Mode::Train };
    for _ in 0..3 {
        let t = Instant::now(); let (y, k) = layer.forward(ctx, many.clone()).unwrap(); let f = t.elapsed().as_secs_f64();
        let t = Instant::now(); let _ = layer.backward_input(k, y).unwrap(); let b = t.elapsed().as_secs_f64();
        println!("f32: fwd {:.1} ms, bwd {:.1} ms", f*1e3, b*1e3);
    }
    let x = Tensor::from_vec(&[1, 1, sizes[0]], (0..sizes[0]).map(|i| i as f32 * 0.001).collect()).unwrap();
    for _ in 0..3 { let t = Instant::now(); let _ = layer.forward_next(0, x.clone()).unwrap(); println!("f32 row {:.2} ms", t.elapsed().as_secs_f64()*1e3); }
}
