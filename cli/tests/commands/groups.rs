use super::*;

/// The order in which gradients are added is the run's, also where the config does not say it.
#[test]
fn a_run_goes_on_with_its_gradient_groups() {
    let place = Place::new();
    let train = |run: &str, replicas: &str, more: &[&str]| {
        let replicas = format!("pipeline.replicas={replicas}");
        let args = ["train", "my.toml", "--set", "pipeline.micro_batches=8", "--set", &replicas];
        place.run(&[&args[..], &["--run-dir", run, "--weights-hash"], more].concat())
    };
    let hash = |run: &str, replicas: &str, more: &[&str]| {
        let said = train(run, replicas, more).done().stdout();
        said.lines().last().unwrap().to_owned()
    };
    let whole = hash("whole", "4", &[]);
    hash("parts", "4", &["--steps", "2"]);
    hash("parts", "1", &["--steps", "4", "--resume"]);
    let said = train("parts", "5", &["--resume"]).refused();
    has(&said, &["pipeline.replicas: 5 replicas cannot share 4 gradient groups"]);
    assert_eq!(hash("parts", "3", &["--resume"]), whole);
    assert_ne!(hash("one", "1", &[]), whole, "one replica adds in one group");
}

#[test]
fn replicas_of_which_some_wait_are_told() {
    let place = Place::new();
    let said = |sets: &[&str]| {
        let args = [&["plan", "my.toml", "--format", "csv"], &set(sets)[..]].concat();
        place.run(&args).done().stderr()
    };
    assert_eq!(said(&["pipeline.replicas=3"]), "", "a micro-batch each");
    let said_of = |sets: &[&str], told: &str| assert_eq!(said(sets), format!("warning: {told}\n"));
    said_of(
        &["pipeline.replicas=3", "pipeline.micro_batches=2"],
        "pipeline.replicas: 3 replicas share 2 micro-batches, so 1 of them have nothing to do: set \
         pipeline.micro_batches to 3 or more",
    );
    let twelve = ["pipeline.replicas=3", "pipeline.micro_batches=12"];
    said_of(
        &twelve,
        "pipeline.gradient_groups: with 4 gradient groups, one of 3 replicas has 6 of 12 micro-batches and \
         another has 3, and waits: set it to 3 for equal shares",
    );
    assert_eq!(said(&[&twelve[..], &["pipeline.gradient_groups=3"]].concat()), "");
}
