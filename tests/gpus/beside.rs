//! Gradients of weights on a stream of their own (`PIPEWRIGHT_BACKWARD_WEIGHT`). A race ends a process.

use super::*;

pub(crate) const BACKWARD_WEIGHT: &str = "PIPEWRIGHT_BACKWARD_WEIGHT";

/// Tests that are run again with that stream.
const TESTS: [&str; 10] = [
    "beside::",
    "failures::any_call_of_a_step_may_fail",
    "offload::",
    "profile::weight_gradients_on_a_stream_of_their_own_are_not_measured",
    "replicas::replicas_on_several_gpus_train_to_the_same_bits",
    "restarts::ranks_on_gpus_are_built_again",
    "shards::adapters_on_gpus_are_divided_too",
    "training::a_gpu_gives_the_same_bits_for_any_stages_and_schedule",
    "training::a_mixture_of_experts_learns_on_a_gpu_what_it_learns_on_the_cpu",
    "training::memory_that_three_ranks_use_is_used_again_when_the_last_is_done",
];

/// The weights of a small GPT, and of a perceptron in two replicas, in schedules that part the two halves of
/// backward and in one that does not.
fn weights() -> String {
    let places = |replicas| [GPU, Device::Cuda(1)].map(|device| on(device, DType::Bf16)).repeat(replicas);
    let hashes = ["1f1b", "zb-h1", "zb-v"].map(|name| {
        let (_, gpt) = train(&recipe(2, true, 4), named(name, 2, 4), places(1));
        let data = RandomRows { rows: 3, width: 10, classes: 5 };
        let model = || Mlp { sizes: vec![10, 9, 7, 5], dropout: 0.1, seed: 3 }.model();
        let mut perceptron = recipe_of(model, Arc::new(data), 4);
        perceptron.replicas = 2;
        format!("{gpt} {}", train(&perceptron, named(name, 2, 4), places(2)).1)
    });
    format!("the weights: {}.", hashes.join(", "))
}

#[test]
fn training_has_the_bits_of_one_stream_and_passes_the_tests() {
    if !matches!(emulator::start(), emulator::Cuda::Emulated(_)) {
        return;
    }
    if env::var_os(BACKWARD_WEIGHT).is_some() {
        return println!("{}", weights());
    }
    let output = Command::new(env::current_exe().expect("this program"))
        .args(TESTS)
        .arg("--nocapture")
        .env(BACKWARD_WEIGHT, "beside")
        .output()
        .expect("a process");
    let [told, errors] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{told}\n{errors}");
    assert!(told.contains(&weights()), "{told}");
}
