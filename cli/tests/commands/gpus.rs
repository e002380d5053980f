use super::*;

/// A GPT of 0.9 million weights in bf16, 16 micro-batches of one row: nothing is measured for it.
fn place() -> Place {
    let place = Place::new();
    let text = "[model]\ndim = 128\nlayers = 4\nheads = 2\n[data]\npath = 'text.txt'\nseq = 64\n\
                [pipeline]\nstages = 1\nmicro_batches = 4\nmicro_batch_size = 1\ndtype = 'bf16'\n\
                [checkpoint]\nbeside = false\n";
    place.write("gpt.toml", text);
    place
}

/// Each GPU has to hold its own rank, whatever the number of replicas.
#[test]
fn a_planned_gpu_holds_its_own_rank() {
    let place = place();
    let said = |kind: &str, sets: &[&str]| {
        let args = [&["plan", "gpt.toml", "--device", kind], &set(sets)[..]].concat();
        place.run(&args).done().stderr()
    };
    let one = said("h100:memory=1MB", &[]);
    let needed = |said: &str| {
        let (_, rest) = said.split_once("training needs about ").unwrap();
        rest.split_once(" of memory").unwrap().0.to_owned()
    };
    assert!(one.starts_with("warning: ") && one.contains("a GPU of the kind h100 has 976.56 KiB"), "{one}");
    let eight = said("h100:memory=1MB", &["pipeline.replicas=4", "pipeline.micro_batches=16"]);
    assert_eq!(needed(&eight), needed(&one));
    assert_eq!(said("h100", &["pipeline.replicas=4"]), "");
}

/// A product decodes its matrix, and of a table of tokens only rows are decoded.
#[test]
fn a_planned_gpu_has_no_room_for_a_decoded_table_of_tokens() {
    let place = Place::new();
    place.write("m.gguf", gguf::quantised(&[8], true).bytes());
    place.run(&["import", "m.gguf", "plain"]).done();
    place.run(&["import", "m.gguf", "blocks", "--blocks"]).done();
    let text = "[lora]\nrank = 2\ntargets = ['h.*']\n[data]\nkind = 'tokens'\npath = 'tokens.bin'\nseq = 16\n\
                [pipeline]\nstages = 2\npartition = [['embed'], ['h.0.attn..head']]\nmicro_batches = 2\n\
                dtype = 'bf16'\n[checkpoint]\nbeside = false\n";
    place.write("lora.toml", text);
    place.write("tokens.bin", [7, 0].repeat(1000));
    let buffers = |folder: &str| {
        let path = format!("model.path={folder}");
        let args = ["plan", "lora.toml", "--device", "h100", "--format", "json", "--set", &path];
        let plan: serde_json::Value = serde_json::from_str(&place.run(&args).done().stdout()).unwrap();
        [0, 1].map(|rank| plan["memory"][rank]["buffers"].as_f64().unwrap())
    };
    let (plain, blocks) = (buffers("plain"), buffers("blocks"));
    assert_eq!(blocks[0], plain[0]);
    // The largest matrix makes both parts of what is gated. A number has two bytes.
    assert_eq!(blocks[1], plain[1] + 2.0 * 1024.0 * 256.0);
}

#[test]
fn a_gpu_may_be_given_by_its_figures() {
    let place = place();
    let step = |kind: &str| {
        let args = ["plan", "gpt.toml", "--device", kind, "--format", "json"];
        let plan: serde_json::Value = serde_json::from_str(&place.run(&args).done().stdout()).unwrap();
        plan["step_with_barrier"].as_f64().unwrap()
    };
    let slow = "mine:memory=24GiB,bf16=70e12,bandwidth=300GB,link=10GB,host=20GB,multiprocessors=58";
    assert!(step(slow) > step("mine:memory=24GiB,bf16=70e12,bandwidth=600GB,multiprocessors=58"));
    assert_eq!(step("l4"), step("l4:memory=48GB"));
    assert!(step("l4:bandwidth=1TB") < step("l4"));
    for (kind, part) in [
        ("gtx", "no GPU `gtx` is known: there are a100, h100, h200, b200, rtx3090, rtx4090, "),
        ("gtx", "gtx:memory=24GB,bf16=165e12,bandwidth=1008GB"),
        ("mine:memory=24GB", "no GPU `mine` is known"),
        ("l4:ram=24GB", "`ram` is no figure of a GPU: there are memory, bf16, bandwidth, link, host and"),
        ("l4:memory=lots", "memory: expected a size above 0 such as 200MiB"),
        ("l4:bf16=0", "bf16: expected a number from 1 on, such as 210e12, got 0"),
        ("l4:24GB", "`24GB` is no figure: write KEY=VALUE, such as memory=24GB"),
    ] {
        let said = place.run(&["plan", "gpt.toml", "--device", kind]).refused();
        assert!(said.contains(part), "{kind}: {said}");
    }
}

#[test]
fn tune_searches_for_gpus_that_are_not_here() {
    let place = place();
    let tune = |args: &[&str]| {
        let all = [&["tune", "gpt.toml", "--device", "rtx4090"], args].concat();
        place.run(&all).done().stdout()
    };
    // One GPU a host, where nothing else is said.
    has(&tune(&["--hosts", "2", "--between-bandwidth", "1.25GB", "--out", "tuned.toml"]), &["chosen: "]);
    let written = place.text("tuned.toml");
    has(&written, &["costs = \"tuned.costs.json\""]);
    has(&written, &["devices = [\"cuda:0\""]);
    has(&place.run(&["plan", "tuned.toml", "--hosts", "2"]).done().stdout(), &[": predicted step 0."]);
    let said = place.run(&["tune", "gpt.toml", "--device", "l4:memory=1MB", "--devices", "2"]).refused();
    has(&said, &["nothing fits into 976.56 KiB on a rank: the least that was found is "]);
    let said = place.run(&["tune", "gpt.toml", "--device", "l4", "--set", "pipeline.dtype=f32"]).refused();
    has(&said, &["pipeline.dtype: for a GPU that is not here (--device)"]);
}

/// Ranks of four hosts are not compared with this machine, and what is measured here is.
#[test]
fn this_machines_memory_is_compared_with_what_is_on_this_machine() {
    let place = Place::new();
    let said = |args: &[&str]| {
        let mut command = place.command(args);
        Run(command.env("PIPEWRIGHT_MEMORY", "1MiB").output().unwrap())
    };
    let plan = ["plan", "my.toml", "--format", "csv"];
    assert!(said(&plan).done().stderr().contains("warning: "), "on this machine it does not fit");
    assert_eq!(said(&[&plan[..], &["--hosts", "4"]].concat()).done().stderr(), "");
    place.run(&["profile", "my.toml"]).done();
    let tune = ["tune", "my.toml", "--costs", "costs.json", "--devices", "2", "--hosts", "2"];
    assert!(said(&tune).done().stdout().contains("chosen: "));
}

#[test]
fn absurd_counts_of_options_are_refused_at_once() {
    let place = place();
    let plan = |args: &str| {
        let args: Vec<&str> = args.split_whitespace().collect();
        place.run(&[&["plan"], &args[..]].concat()).refused()
    };
    let huge = "4000000000";
    for (args, part) in [
        ("--ranks HUGE --micro-batches 8 --schedule 1f1b", "4000000000 is not in 0..=65536"),
        ("--ranks 1000000 --micro-batches 8 --schedule 1f1b", "1000000 is not in 0..=65536"),
        (
            "--ranks 4 --micro-batches HUGE --schedule 1f1b",
            "4 ranks x 1 chunks x HUGE micro-batches is too large",
        ),
        ("--ranks 4 --micro-batches HUGE --replicas HUGE --schedule 1f1b", "is not in 1..=65536"),
        ("--ranks 4 --micro-batches 8 --chunks HUGE --schedule zb-h1", "HUGE"),
        ("--ranks 4 --micro-batches 8 --chunks HUGE --schedule interleaved-1f1b", "HUGE"),
        ("--ranks 64 --micro-batches 10000 --schedule auto", "auto searches up to 4096 ranks and 2^16 cells"),
    ] {
        let said = plan(&args.replace("HUGE", huge));
        assert!(said.contains(&part.replace("HUGE", huge)), "{args}: {said}");
    }
    for option in ["--devices", "--replicas"] {
        let said = place.run(&["tune", "gpt.toml", "--device", "l4", option, huge]).refused();
        has(&said, &["4000000000 is not in 1..=1048576"]);
    }
    let said = place.run(&["tune", "gpt.toml", "--device", "l4", "--ranks", huge]).refused();
    has(&said, &["a model of 10 layers has stages for 10 ranks at most"]);
}

#[test]
fn auto_tells_that_it_searches() {
    let place = place();
    let said = |micro_batches: &str| {
        let args = ["plan", "--ranks", "2", "--micro-batches", micro_batches, "--schedule", "auto"];
        place.run(&[&args[..], &["--chunks", "1", "--format", "csv"]].concat()).done().stderr()
    };
    let told = "auto compares schedules for 2 ranks and 600 micro-batches, which may take minutes\n";
    assert!(said("600").starts_with(told));
    assert!(!said("8").contains("which may take minutes"));
}
