//! Streams that run late, at once or at random give the same weights, also where kernels tell what they use.

use super::*;

/// Set in a process that trains in another order.
const ORDERED: &str = "PIPEWRIGHT_ORDERED";

#[test]
fn the_order_of_streams_changes_no_weight() {
    if !matches!(emulator::start(), emulator::Cuda::Emulated(_)) {
        return;
    }
    let hash = || {
        let places = [GPU, Device::Cuda(1)].map(|device| on(device, DType::Bf16));
        train(&recipe(2, true, 4), named("zb-h1", 2, 4), places.into()).1
    };
    if env::var_os(ORDERED).is_some() {
        return println!("the weights: {}", hash());
    }
    let expected = format!("the weights: {}", hash());
    for (setting, value) in [("STREAMS", "eager"), ("STREAMS", "1"), ("STREAMS", "2"), ("ADDRESSES", "1")] {
        let output = Command::new(env::current_exe().expect("this program"))
            .args(["--exact", "orders::the_order_of_streams_changes_no_weight", "--nocapture"])
            .env(ORDERED, "")
            .env(format!("PIPEWRIGHT_EMULATOR_{setting}"), value)
            .output()
            .expect("a process");
        let [told, errors] =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert!(output.status.success(), "{setting}={value}: {told}\n{errors}");
        assert!(told.contains(&expected), "{setting}={value}: {told}");
    }
}
