//! Layers and losses against single calls of PyTorch 2.15: values and gradients.

use pipewright_stages::layers::{Conv1d, Softmax, Tanh};
use pipewright_stages::loss::{AbsoluteError, BinaryCrossEntropy, Huber};
use pipewright_stages::testing::check_gradients;
use pipewright_stages::{DType, Device, Layer, Place};

use super::*;

#[track_caller]
fn assert_near(got: &[f32], expected: &[f32]) {
    assert_eq!(got.len(), expected.len());
    for (got, expected) in got.iter().zip(expected) {
        let apart = (got - expected).abs();
        assert!(apart <= 2e-6 * expected.abs().max(0.2), "{got} for {expected}");
    }
}

/// The numbers `(index * factor % modulus - shift) / divisor`.
fn steps(count: usize, factor: usize, modulus: usize, shift: f32, divisor: f32) -> Vec<f32> {
    let number = |index| ((index * factor % modulus) as f32 - shift) / divisor;
    (0..count).map(number).collect()
}

/// ```python
/// x = ((arange(36) * 7 % 11 - 5) / 4).reshape(2, 6, 3)
/// w = ((arange(18) * 5 % 13 - 6) / 8).reshape(3, 3, 2)  # kernel, inputs, outputs
/// b = tensor([0.25, -0.5])
/// y = conv1d(x.transpose(1, 2), w.permute(2, 1, 0), b, stride=2, padding=1).transpose(1, 2)
/// y.backward(((arange(12) * 3 % 7 - 3) / 2).reshape(2, 3, 2))
/// ```
#[test]
fn conv1d_has_pytorchs_numbers() {
    let mut conv = Conv1d::new("conv", [3, 2], 3, Init::Zeros, 1).with_stride(2).with_padding(1);
    let input = Tensor::from_vec(&[2, 6, 3], steps(36, 7, 11, 5.0, 4.0)).unwrap();
    let grad = Tensor::from_vec(&[2, 3, 2], steps(12, 3, 7, 3.0, 2.0)).unwrap();
    let [weight, bias] = &mut conv.parameters()[..] else {
        panic!("two parameters");
    };
    assert_eq!((weight.name(), weight.dims()), ("conv.weight", &[9, 2][..]));
    weight.value.copy_from_slice(&steps(18, 5, 13, 6.0, 8.0));
    bias.value.copy_from_slice(&[0.25, -0.5]);
    let (output, input_grad) = common::pass(&mut conv, &input, &grad);
    assert_eq!(output.dims(), [2, 3, 2]);
    let expected = [
        0.59375, -1.6875, -0.6875, -1.4375, 0.03125, -2.125, 1.1875, -1.15625, -0.9375, 1.3125, 0.8125,
        -0.0625,
    ];
    assert_eq!(output.f32(), expected);
    let expected = [
        0.375, 0.9375, -0.9375, -1.4375, 1.1875, 0.5625, -0.5625, -0.9375, 1.125, 0.125, 0.5625, -1.4375,
        -0.625, -0.625, 1.0, 1.0, -0.625, -0.625, -0.6875, -0.3125, 0.875, 1.0625, -1.5625, 0.6875, 0.5625,
        0.0, -0.5625, -0.875, 0.0, 0.875, 0.5, 0.3125, -0.6875, -0.875, 0.5625, 0.375,
    ];
    assert_eq!(input_grad.unwrap().f32(), expected);
    let expected = [
        3.0, -2.5, -0.375, -0.75, -2.375, 2.375, 4.375, -2.75, -2.125, 4.625, 1.0, -1.75, 0.0, -2.625,
        -2.375, 4.75, 0.75, -1.625,
    ];
    assert_eq!(&conv.parameters()[0].grad[..], expected);
    assert_eq!(&conv.parameters()[1].grad[..], [1.0, -0.5]);
}

/// `y = x.tanh()` and `y = x.softmax(-1)`, each with `y.backward(g)`.
#[test]
fn tanh_and_softmax_have_pytorchs_numbers() {
    let input = vec![-3.0, -0.5, 1e-3, 0.2, 0.0, 1.0, 4.0, 20.0];
    let input = Tensor::from_vec(&[2, 4], input).unwrap();
    let grad = vec![1.0, -2.0, 0.5, 3.0, 1.0, 1.0, -1.0, 2.0];
    let grad = Tensor::from_vec(&[2, 4], grad).unwrap();
    let (output, input_grad) = common::pass(&mut Tanh::new("tanh"), &input, &grad);
    assert_near(output.f32(), &[-0.9950548, -0.4621172, 0.001, 0.1973753, 0.0, 0.7615942, 0.9993293, 1.0]);
    assert_near(
        input_grad.unwrap().f32(),
        &[0.009_865_98, -1.5728954, 0.4999995, 2.883_129, 1.0, 0.4199743, -0.001_340_893, 0.0],
    );
    let (output, input_grad) = common::pass(&mut Softmax::new("softmax"), &input, &grad);
    assert_near(output.f32(), &[0.0172949, 0.2106945, 0.3477241, 0.4242866, 0.0, 0.0, 1e-7, 0.9999999]);
    assert_near(
        input_grad.unwrap().f32(),
        &[-0.000_737_24, -0.6410649, -0.1886847, 0.8304868, 0.0, 0.0, -3.376e-7, 3.576e-7],
    );
}

#[test]
fn a_window_may_lie_in_the_border_alone() {
    let conv = Conv1d::new("conv", [2, 3], 2, Init::Uniform(0.5), 1).with_padding(4);
    check_gradients(conv, &common::tensor("x", &[2, 3, 2])).unwrap();
}

#[test]
fn sequences_that_do_not_fit_are_refused() {
    let refusal = |layer: &dyn Layer, dims: &[usize]| {
        let input = Tensor::zeros(dims);
        layer.output_shape(input.shape()).unwrap_err().to_string()
    };
    let conv = Conv1d::new("conv", [3, 4], 5, Init::Zeros, 1).with_padding(1);
    assert_eq!(refusal(&conv, &[2, 8, 4]), "expected an input of f32[batch, time, 3], got f32[2, 8, 4]");
    assert_eq!(
        refusal(&conv, &[2, 2, 3]),
        "a window of 5 does not fit into sequences of 2 with a border of 1: choose a smaller kernel, more \
         padding or longer sequences"
    );
    let conv = Conv1d::new("conv", [3, 4], 5, Init::Zeros, 1).with_stride(0);
    assert_eq!(refusal(&conv, &[2, 8, 3]), "stride is 0: it must be at least 1");
    assert_eq!(refusal(&Softmax::new("softmax"), &[]), "expected an input of f32[.., width], got f32[]");
}

/// They compute on the CPU, in `f32`. A convolution sees what comes later, so it writes no text.
#[test]
fn what_these_layers_do_not_do_is_refused() {
    let layers: [fn() -> Box<dyn Layer>; 3] = [
        || Box::new(Conv1d::new("one", [3, 4], 5, Init::Zeros, 1)),
        || Box::new(Tanh::new("one")),
        || Box::new(Softmax::new("one")),
    ];
    let half = Place { device: Device::Cpu, dtype: DType::Bf16 };
    for layer in layers {
        let error = Sequential::new(vec![layer()]).move_to(half).unwrap_err();
        assert_eq!(error.to_string(), "one: this layer computes in f32 only: set dtype to f32");
    }
    let error = layers[0]().forward_next(0, Tensor::zeros(&[1, 8, 3])).unwrap_err();
    assert_eq!(error.to_string(), "a convolution writes no text: its windows see tokens that come later");
}

fn six(numbers: [f32; 6]) -> Tensor {
    Tensor::from_vec(&[2, 3], numbers.to_vec()).unwrap()
}

/// `l1_loss`, `huber_loss` and `binary_cross_entropy_with_logits` of the same output, each with
/// `reduction="sum"` and `backward()`.
#[test]
fn losses_have_pytorchs_numbers() {
    let output = six([-2.0, 0.25, 1.5, 0.75, -0.125, 3.0]);
    let target = six([1.0, 0.0, 1.0, 1.0, 0.0, 2.5]);
    let check = |loss: &mut dyn Loss<Tensor>, target: &Tensor, sum: f64, grad: [f32; 6]| {
        let (score, got) = loss.forward(output.clone(), target.clone()).unwrap();
        assert!((score.sum - sum).abs() < 1e-6, "{loss:?}: {} for {sum}", score.sum);
        assert_near(got.f32(), &grad);
        assert_eq!(score.weight, 6.0);
        assert_eq!(loss.score(output.clone(), target.clone()).unwrap(), score);
        score
    };
    check(&mut AbsoluteError, &target, 4.625, [-1.0, 1.0, 1.0, -1.0, -1.0, 1.0]);
    let slopes = [-1.0, 0.25, 0.5, -0.25, -0.125, 0.5];
    check(&mut Huber::new(1.0).unwrap(), &target, 2.8203125, slopes);
    let slopes = [-0.5, 0.25, 0.5, -0.25, -0.125, 0.5];
    check(&mut Huber::new(0.5).unwrap(), &target, 1.6953125, slopes);
    let target = six([1.0, 0.0, 1.0, 0.0, 0.25, 1.0]);
    let slopes = [-0.8807971, 0.5621765, -0.1824256, 0.6791787, 0.2187906, -0.0474259];
    let score = check(&mut BinaryCrossEntropy, &target, 5.003_588_2, slopes);
    assert_eq!(score.metrics.get("accuracy"), Some(0.5));
}

/// The slope of each loss, by differences of its score.
#[test]
fn gradients_of_losses_are_their_slopes() {
    let numbers = common::numbers("output", 40);
    let target =
        Tensor::from_vec(&[40], common::numbers("target", 40).iter().map(|x| x.abs()).collect()).unwrap();
    let mut losses: [Box<dyn Loss<Tensor>>; 3] =
        [Box::new(AbsoluteError), Box::new(Huber::new(0.7).unwrap()), Box::new(BinaryCrossEntropy)];
    for loss in &mut losses {
        let output = Tensor::from_vec(&[40], numbers.clone()).unwrap();
        let grad = loss.forward(output, target.clone()).unwrap().1;
        for (at, slope) in grad.f32().iter().enumerate() {
            let mut moved = |by: f32| {
                let mut numbers = numbers.clone();
                numbers[at] += by;
                loss.score(Tensor::from_vec(&[40], numbers).unwrap(), target.clone()).unwrap().sum
            };
            let step = 1e-3;
            let difference = (moved(step) - moved(-step)) / (2.0 * f64::from(step));
            assert!(
                (difference - f64::from(*slope)).abs() < 2e-3,
                "{loss:?}: {slope} and {difference} at {at}"
            );
        }
    }
}

#[test]
fn huge_logits_and_equal_numbers_have_finite_losses() {
    let output = Tensor::from_vec(&[4], vec![1e4, -1e4, 1e4, -1e4]).unwrap();
    let target = Tensor::from_vec(&[4], vec![1.0, 0.0, 0.0, 1.0]).unwrap();
    let (score, grad) = BinaryCrossEntropy.forward(output, target.clone()).unwrap();
    assert_eq!(score.sum, 2e4);
    let slopes = grad.f32().iter().zip([0.0_f32, 0.0, 1.0, -1.0]);
    assert!(slopes.clone().all(|(got, slope)| (got - slope).abs() < 1e-30), "{slopes:?}");
    let (score, grad) = AbsoluteError.forward(target.clone(), target).unwrap();
    assert_eq!((score.sum, grad.f32()), (0.0, &[0.0; 4][..]));
}

#[test]
fn what_these_losses_cannot_use_is_refused() {
    for delta in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        let said = Huber::new(delta).unwrap_err().to_string();
        assert_eq!(said, format!("Huber's delta is {delta}: it must be a number above 0, such as 1.0"));
    }
    let target = Tensor::from_vec(&[1], vec![1.5]).unwrap();
    let said = BinaryCrossEntropy.score(Tensor::zeros(&[1]), target).unwrap_err().to_string();
    assert_eq!(said, "loss: a target is 1.5, and must be from 0 to 1: 0 for no, 1 for yes");
    let ids = Tensor::from_ids(&[1], vec![1]).unwrap();
    let said = AbsoluteError.score(Tensor::zeros(&[1]), ids).unwrap_err().to_string();
    assert_eq!(said, "loss: expected f32[1] as the target, got ids[1]");
    assert!(!Loss::<Tensor>::runs_on_gpus(&AbsoluteError));
}
