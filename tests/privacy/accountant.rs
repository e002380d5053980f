//! Epsilon is what published packages compute.

use pipewright::privacy::Accountant;

#[test]
fn epsilon_is_that_of_opacus_and_of_dp_accounting() {
    let cases: Vec<[f64; 6]> =
        serde_json::from_str(include_str!("../golden/privacy/accountant.json")).expect("it is JSON");
    assert!(cases.len() > 100);
    let mut equal = 0;
    for [noise, rate, steps, delta, opacus, google] in cases {
        let found = Accountant::new(noise, rate, delta).epsilon(steps as u64);
        let off = |other: f64| (found - other).abs() / other.max(1e-3);
        let what = format!("noise {noise}, rate {rate}, {steps} steps, delta {delta}: {found}");
        // Opacus ends its series early.
        assert!(off(opacus) < 1e-5, "{what}, and opacus has {opacus}");
        // Google leaves out orders whose series is long, and says 0 where delta alone is enough.
        equal += usize::from(off(google) < 1e-6);
    }
    assert!(equal > 100, "{equal} as dp-accounting has them");
}

#[test]
fn epsilon_grows_with_steps_and_rate_and_falls_with_noise() {
    let of = |noise, rate, delta| Accountant::new(noise, rate, delta).epsilon(1000);
    let usual = Accountant::new(1.1, 0.01, 1e-5);
    let epsilon = usual.epsilon(1000);
    assert!(usual.epsilon(2000) > epsilon);
    assert!(of(1.1, 0.02, 1e-5) > epsilon);
    assert!(of(1.2, 0.01, 1e-5) < epsilon);
    assert!(of(1.1, 0.01, 1e-6) > epsilon);
    assert_eq!(of(1.1, 7.0, 1e-5), of(1.1, 1.0, 1e-5), "a step takes all samples at most");
}
