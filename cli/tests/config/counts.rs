use super::*;

/// The keys of all sections, as the refusal of an unknown one lists them.
fn keys() -> Vec<String> {
    let listed = |text: &str, start: &str| -> Vec<String> {
        let said = refused(parse(text));
        let (_, listed) = said.split_once(start).unwrap_or_else(|| panic!("{said}"));
        let listed = listed.trim_end_matches(')').split(", ");
        listed.map(|name| name.trim().to_owned()).collect()
    };
    let sections = listed("[zzzzzzzzz]", "(sections: ");
    let keys = sections.iter().flat_map(|section| {
        let keys = listed(&format!("[{section}]\nzzzzzzzzz = 1"), &format!("keys of [{section}]: "));
        keys.into_iter().map(move |key| format!("{section}.{key}"))
    });
    keys.collect()
}

/// Whatever a key counts, an absurd number of it is refused by a limit or a rule, or it makes nothing larger:
/// neither the schedule nor the memory. No work is done for it first.
#[test]
fn an_absurd_count_is_refused_or_costs_nothing() {
    let keys = keys();
    assert!(keys.len() > 90, "{keys:?}");
    let images = "[data]\nkind = 'cifar10'\n[model]\nkind = 'resnet'\n";
    for base in ["", "[model]\nkind = 'mixtral'\n", images] {
        let size = |sets: &[String]| -> pipewright::Result<([u32; 4], f64)> {
            let config = Config::parse("my.toml", base, &[], sets)?;
            let plan = compose::plan(&config)?;
            let memory = compose::memory(&config, &plan)?;
            let largest = plan.replicas.largest();
            let sizes =
                [plan.replicas.count(), largest.ranks(), largest.stages(), plan.replicas.micro_batches()];
            Ok((sizes, memory.iter().map(|rank| rank.total()).sum()))
        };
        let (sizes, memory) = size(&[]).expect("the config without it");
        for (key, value) in
            keys.iter().flat_map(|key| ["4294967295", "4611686018427387904"].map(|v| (key, v)))
        {
            match size(&[format!("{key}={value}")]) {
                Ok((with, held)) => {
                    assert_eq!(with, sizes, "{key}={value}");
                    assert!(held <= 8.0 * memory, "{key}={value}: {held}");
                }
                Err(error) => {
                    let said = error.to_string();
                    assert!(said.contains(key.as_str()) || said.contains(value), "{key}={value}: {said}");
                }
            }
        }
    }
}

#[test]
fn more_stages_than_layers_are_refused_before_a_schedule_is_made_for_them() {
    for schedule in ["1f1b", "auto", "zb-v", "dualpipe-v"] {
        let text = format!("[pipeline]\nstages = 1000000\nschedule = '{schedule}'\n");
        let config = Config::parse("my.toml", &text, &[], &[]).expect("within the limits");
        has(&compose::plan(&config).expect_err("10 layers"), &["my.toml:2: pipeline.stages: "]);
        let gpu = pipewright::plan::Gpu::named("h100").expect("a kind");
        has(&compose::with_gpus(config, gpu).expect_err("10 layers"), &["my.toml:2: pipeline.stages: "]);
    }
}

#[test]
fn gradient_groups_follow_the_replicas_and_stay_those_of_a_run() {
    let config = |sets: &[&str]| {
        let sets: Vec<String> = sets.iter().map(|set| format!("pipeline.{set}")).collect();
        Config::parse("my.toml", "", &[], &sets).expect("a config")
    };
    for (replicas, groups) in [("1", 1), ("2", 2), ("3", 4), ("4", 4), ("5", 8)] {
        let config = config(&[&format!("replicas={replicas}")]);
        assert_eq!(config.gradient_groups(), groups, "{replicas} replicas");
        has(&config.resolved_toml().expect("text"), &[&format!("gradient_groups = {groups}\n")]);
    }
    assert_eq!(config(&["replicas=2", "gradient_groups=8"]).gradient_groups(), 8);
    // A run goes on with the groups that it was begun with, whatever number of replicas it has now.
    let saved = config(&["replicas=4"]).resolved_toml().expect("text");
    let resumed = |sets: &[&str]| config(sets).grouped_as(&saved).map(|config| config.gradient_groups());
    assert_eq!(resumed(&[]).expect("one replica"), 4);
    assert_eq!(resumed(&["replicas=3"]).expect("three"), 4);
    assert_eq!(resumed(&["gradient_groups=16"]).expect("set"), 16);
    let said = resumed(&["replicas=5"]).expect_err("too many").to_string();
    has(&said, &["pipeline.replicas: 5 replicas cannot share 4 gradient groups"]);
}

#[test]
fn documents_become_sequences_by_what_is_learnt_and_stay_those_of_a_run() {
    let config = |sets: &[&str]| {
        let sets: Vec<String> = sets.iter().map(|set| format!("data.{set}")).collect();
        let file = "[data]\nkind = 'jsonl'\ntokenizer = 'x'\npath = 'y'\n";
        Config::parse("my.toml", file, &[], &sets).expect("a config")
    };
    let apart = Packing::Apart(Longer::Cut);
    let answers = "loss_on=answers";
    for (sets, expected) in [
        (&[][..], Packing::Joined),
        (&[answers], apart),
        (&["packing=apart"], apart),
        (&["packing=apart", "longer=leave-out"], Packing::Apart(Longer::LeaveOut)),
        (&[answers, "longer=refuse"], Packing::Apart(Longer::Refuse)),
        (&[answers, "packing=true"], Packing::Joined),
        (&[answers, "packing=false"], Packing::Single),
    ] {
        let expected = Some(expected);
        assert_eq!(config(sets).packing(), expected, "{sets:?}");
        let saved = config(sets).resolved_toml().expect("text");
        let again = Config::parse("saved.toml", &saved, &[], &[]).expect("it was written");
        assert_eq!(again.packing(), expected, "{saved}");
        assert!(again.changes_from(&config(sets)).expect("comparable").is_empty(), "{sets:?}");
    }
    // A run of an earlier version goes on as it was begun.
    let resumed = config(&[answers]).grouped_as("[data]\npacking = true").expect("it fits");
    assert_eq!(resumed.packing(), Some(Packing::Joined));
}

/// Text and tokens are drawn at random places, unless the config says what becomes of their documents.
#[test]
fn text_has_documents_where_the_config_says_so() {
    for kind in ["text", "tokens"] {
        let config = |sets: &[String]| {
            let file = format!("[data]\nkind = '{kind}'\npath = 'y'\n");
            Config::parse("my.toml", &file, &[], sets).expect("a config")
        };
        for (sets, expected) in [
            (vec![], None),
            (vec!["data.packing=joined".to_owned()], Some(Packing::Joined)),
            (vec!["data.packing=single".to_owned()], Some(Packing::Single)),
            (vec!["data.packing=apart".to_owned()], Some(Packing::Apart(Longer::Cut))),
        ] {
            assert_eq!(config(&sets).packing(), expected, "{kind}, {sets:?}");
            let saved = config(&sets).resolved_toml().expect("text");
            let again = Config::parse("saved.toml", &saved, &[], &[]).expect("it was written");
            assert_eq!(again.packing(), expected, "{saved}");
        }
    }
}
