//! Updates of Adafactor equal PyTorch's, updates of Muon equal PyTorch's with exact products, and updates of
//! Lion equal the paper's formula: `scripts/optimizers_golden.py` has made the numbers.

use pipewright_stages::optimizer::{Adafactor, Lion, Muon, states_of};
use pipewright_stages::{Numbers, Training};

use super::*;

const STEPS: u64 = 5;

fn numbers(count: usize, start: f64) -> Vec<f32> {
    let sine = |index: usize| (start + 0.7 * (index * index) as f64).sin() as f32;
    (0..count).map(sine).collect()
}

/// The optimizer that the script has, and the learning rate.
fn optimizer(kind: &str) -> (Box<dyn Optimizer>, f64) {
    let adafactor = |weight_decay| Adafactor { weight_decay, decay: Decay::All, ..Adafactor::default() };
    match kind {
        "lion" => {
            let lion = Lion { weight_decay: 0.2, decay: Decay::All, ..Lion::default() };
            (Box::new(lion), 3e-3)
        }
        "adafactor" => (Box::new(adafactor(0.1)), 0.02),
        "adafactor, small rate" => (Box::new(adafactor(0.0)), 1e-3),
        "muon" => {
            let adamw = AdamW { weight_decay: 0.1, ..AdamW::default() };
            let muon = Muon { adamw, ..Muon::default() };
            (Box::new(muon), 0.02)
        }
        other => panic!("{other}"),
    }
}

/// Trains a parameter as the script does. The gradients are summed over a batch of weight 20 here, so that
/// the scale counts.
fn train(optimizer: &dyn Optimizer, learning_rate: f64, dims: &[usize]) -> Parameter {
    let mut parameter = Parameter::new("p", dims, Init::Zeros, 0);
    let count = parameter.value.len();
    parameter.value.copy_from_slice(&numbers(count, 0.3));
    for step in 1..=STEPS {
        parameter.grad.copy_from_slice(&numbers(count, 2.0 * step as f64 - 1.0));
        let by = Update { step, learning_rate, scale: 0.05, micro_batches: 1 };
        Together::now(|together| optimizer.update(&mut parameter, by, together)).unwrap();
    }
    parameter
}

#[test]
fn updates_equal_the_golden_numbers() {
    let golden: Value = serde_json::from_str(include_str!("../golden/optimizers.json")).unwrap();
    for (kind, cases) in golden.as_object().unwrap() {
        let (optimizer, learning_rate) = optimizer(kind);
        for (name, case) in cases.as_object().unwrap() {
            let list = |key: &str| case[key].as_array().unwrap().iter().map(|x| x.as_f64().unwrap());
            let dims: Vec<usize> = list("shape").map(|size| size as usize).collect();
            let parameter = train(&*optimizer, learning_rate, &dims);
            for (index, (got, expected)) in parameter.value.iter().zip(list("weights")).enumerate() {
                let off = (f64::from(*got) - expected).abs();
                assert!(off < 2e-6, "{kind}, {name}, weight {index}: {got}, not {expected}");
            }
            let states = optimizer.states("p", &dims);
            let lengths = states.iter().map(|state| state.dims.iter().product());
            let kept: Vec<usize> = parameter.state.iter().map(|state| state.len()).collect();
            assert_eq!(kept, lengths.collect::<Vec<usize>>(), "{kind}, {name}");
        }
    }
}

/// A vector, and a matrix that is named.
#[test]
fn muon_leaves_some_to_adamw() {
    let muon = Muon { by_adamw: vec!["p".to_owned()], ..Muon::default() };
    for dims in [&[21][..], &[2, 3, 5], &[5, 4]] {
        let expected = train(&muon.adamw, 0.01, dims);
        let got = train(&muon, 0.01, dims);
        assert_eq!((&got.value, &got.state), (&expected.value, &expected.state));
    }
    assert_ne!(train(&Muon::default(), 0.01, &[5, 4]).value, train(&muon, 0.01, &[5, 4]).value);
}

/// An empty tensor, and a gradient of zeros.
#[test]
fn nothing_to_do_is_done() {
    for kind in ["lion", "adafactor", "muon"] {
        let (optimizer, _) = optimizer(kind);
        for dims in [&[0][..], &[0, 3], &[3, 0], &[2, 3]] {
            let mut parameter = Parameter::new("p", dims, Init::Zeros, 0);
            let by = Update { step: 1, learning_rate: 0.1, scale: 1.0, micro_batches: 1 };
            Together::now(|together| optimizer.update(&mut parameter, by, together)).unwrap();
            assert!(parameter.value.iter().all(|&weight| weight == 0.0), "{kind} {dims:?}");
        }
    }
}

/// Tensors that are one parameter change as they do apart: rows of matrices, vectors, and lists of matrices.
#[test]
fn fused_tensors_are_updated_each_by_itself() {
    for kind in ["lion", "adafactor", "muon"] {
        let (optimizer, learning_rate) = optimizer(kind);
        for (sizes, rest) in [(&[4, 2, 2][..], &[5][..]), (&[3, 3], &[9]), (&[6, 2], &[]), (&[1, 2], &[3, 4])]
        {
            let dims = [&[sizes.iter().sum()], rest].concat();
            let mut whole = Parameter::new("p", &dims, Init::Zeros, 0);
            whole.fuse(sizes);
            let alone = |size: &usize| Parameter::new("p", &[&[*size], rest].concat(), Init::Zeros, 0);
            let mut apart: Vec<Parameter> = sizes.iter().map(alone).collect();
            let count = whole.value.len();
            whole.value.copy_from_slice(&numbers(count, 0.3));
            each(&mut apart, &numbers(count, 0.3), |one| &mut one.value);
            for step in 1..=STEPS {
                let grad = numbers(count, 2.0 * step as f64 - 1.0);
                whole.grad.copy_from_slice(&grad);
                each(&mut apart, &grad, |one| &mut one.grad);
                let by = Update { step, learning_rate, scale: 0.05, micro_batches: 1 };
                for one in apart.iter_mut().chain([&mut whole]) {
                    Together::now(|together| optimizer.update(one, by, together)).unwrap();
                }
            }
            let values: Vec<f32> = apart.iter().flat_map(|one| one.value.to_vec()).collect();
            assert_eq!(whole.value[..], values, "{kind}, {sizes:?}");
            for (index, state) in whole.state.iter().enumerate() {
                let states: Vec<f32> = apart.iter().flat_map(|one| one.state[index].to_vec()).collect();
                assert_eq!(state[..], states, "{kind}, {sizes:?}");
            }
            let lengths = states_of(&*optimizer, &whole).into_iter();
            let lengths: Vec<usize> = lengths.map(|state| state.dims.iter().product()).collect();
            let kept: Vec<usize> = whole.state.iter().map(|state| state.len()).collect();
            assert_eq!(kept, lengths, "{kind}, {sizes:?}");
        }
    }
}

/// Gives each parameter the next numbers.
fn each(apart: &mut [Parameter], numbers: &[f32], of: impl Fn(&mut Parameter) -> &mut Numbers) {
    let mut rest = numbers;
    for one in apart {
        let (own, after) = rest.split_at(one.value.len());
        of(one).copy_from_slice(own);
        rest = after;
    }
}

/// `decay` says which parameters decay, and a parameter's own weight decay only how much.
#[test]
fn an_own_weight_decay_decays_no_vector_unless_all_decay() {
    for (decay, dims, share) in
        [(Decay::Matrices, &[4][..], 0.0), (Decay::Matrices, &[2, 2], 0.5), (Decay::All, &[4], 0.5)]
    {
        let optimizers: [Box<dyn Optimizer>; 4] = [
            Box::new(AdamW { decay, ..AdamW::default() }),
            Box::new(Lion { decay, ..Lion::default() }),
            Box::new(Sgd { decay, ..Sgd::default() }),
            Box::new(Adafactor { decay, ..Adafactor::default() }),
        ];
        for optimizer in optimizers {
            let mut parameter = Parameter::new("p", dims, Init::Ones, 0);
            parameter.train_by(Training { weight_decay: Some(0.5), ..Training::default() });
            let by = Update { step: 1, learning_rate: 0.1, scale: 1.0, micro_batches: 1 };
            Together::now(|together| optimizer.update(&mut parameter, by, together)).unwrap();
            let expected = (1.0 - 0.1 * share) as f32;
            let is_near = parameter.value.iter().all(|value| (value - expected).abs() < 1e-6);
            assert!(is_near, "{optimizer:?}, {dims:?}: {:?}", parameter.value);
        }
    }
}
