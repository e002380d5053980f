//! What the cores can do: the rate of single-precision matrix products with the `gemm` crate, on all cores at
//! once, one thread per core.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use gemm_common::Parallelism;
use pipewright::schedule::Pass;

use crate::products::Product;
use crate::sizes::{Result, Size};

/// How often a product is timed, and for how long at least. The fastest time counts.
const REPEATS: usize = 8;
const LONG_ENOUGH: Duration = Duration::from_millis(8);

/// The rate of one shape.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) product: Product,
    /// The operations that the model needs in all products of this shape, for one micro-batch.
    pub(crate) flops: f64,
    /// Operations per second of all threads together.
    pub(crate) rate: f64,
}

/// The rates of the size's products.
#[derive(Debug)]
pub(crate) struct Rates(pub(crate) Vec<Measured>);

impl Rates {
    pub(crate) fn measure(size: &Size, threads: usize) -> Result<Self> {
        let mut rates: Vec<Measured> = Vec::new();
        for product in size.products()?.into_iter().flat_map(|(_, products)| products) {
            match rates.iter_mut().find(|rate| is_like(&rate.product, &product)) {
                Some(like) => like.flops += product.flops,
                None => {
                    rates.push(Measured { product, flops: product.flops, rate: measure(&product, threads) })
                }
            }
        }
        Ok(Self(rates))
    }

    /// The highest rate of any shape.
    pub(crate) fn best(&self) -> f64 {
        self.0.iter().map(|one| one.rate).fold(0.0, f64::max)
    }

    /// The rate of all products together, one after the other.
    pub(crate) fn mean(&self) -> f64 {
        let flops: f64 = self.0.iter().map(|one| one.flops).sum();
        let seconds: f64 = self.0.iter().map(|one| one.flops / one.rate).sum();
        flops / seconds
    }
}

/// Whether two products are the same work for a library.
fn is_like(one: &Product, other: &Product) -> bool {
    let work = |of: &Product| (of.pass, of.m, of.k, of.n, of.transposed);
    work(one) == work(other)
}

/// Operations per second of all threads together. Each thread has its own operands.
fn measure(product: &Product, threads: usize) -> f64 {
    let barrier = Barrier::new(threads);
    let rates: Vec<Vec<f64>> = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..threads).map(|_| scope.spawn(|| on_one_thread(product, &barrier))).collect();
        let rates = threads.into_iter().map(|thread| thread.join());
        rates.map(|rates| rates.expect("products do not panic")).collect()
    });
    let of_all = |repeat: usize| rates.iter().map(|rates| rates[repeat]).sum();
    (0..REPEATS).map(of_all).fold(0.0, f64::max)
}

fn on_one_thread(product: &Product, barrier: &Barrier) -> Vec<f64> {
    let Product { m, k, n, .. } = *product;
    let filled = |count: usize| (0..count).map(|i| (i % 13) as f32 * 0.1).collect::<Vec<f32>>();
    let (left, right, mut result) = (filled(m * k), filled(k * n), vec![0.0; m * n]);
    let repeat = || {
        barrier.wait();
        let (started, mut calls) = (Instant::now(), 0);
        while calls == 0 || started.elapsed() < LONG_ENOUGH {
            multiply(product, &left, &right, &mut result);
            calls += 1;
        }
        2.0 * (m * k * n * calls) as f64 / started.elapsed().as_secs_f64()
    };
    std::iter::repeat_with(repeat).take(REPEATS).collect()
}

/// The product of matrices that are stored by rows or transposed. A weight gradient is added to the old
/// result.
#[allow(unsafe_code, reason = "the library's only interface takes pointers")]
fn multiply(product: &Product, left: &[f32], right: &[f32], result: &mut [f32]) {
    let Product { m, k, n, transposed, pass, .. } = *product;
    assert!(left.len() == m * k && right.len() == k * n && result.len() == m * n);
    // The distance between columns, and the distance between rows.
    let strides = |rows: usize, columns: usize, transposed| match transposed {
        true => (rows as isize, 1),
        false => (1, columns as isize),
    };
    let (left_column, left_row) = strides(m, k, transposed[0]);
    let (right_column, right_row) = strides(k, n, transposed[1]);
    // SAFETY: by the assertion, the slices hold all that these dimensions and strides reach. `result` is
    // borrowed exclusively.
    unsafe {
        // It prefers columns, so it gets the product of the transposed operands, as from the crate `gemm`.
        gemm_f32::gemm::f32::get_gemm_fn()(
            n,
            m,
            k,
            result.as_mut_ptr(),
            n as isize,
            1,
            pass == Pass::BackwardWeight,
            right.as_ptr(),
            right_row,
            right_column,
            left.as_ptr(),
            left_row,
            left_column,
            1.0,
            1.0,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}
