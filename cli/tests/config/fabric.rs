use super::*;
use pipewright_cli::config::Fabric;

/// What is chosen with this `launch.fabric` under these variables: the line that says it, or the refusal.
fn chosen(fabric: &str, variables: &[(&str, &str)]) -> String {
    chosen_with(&[&format!("launch.fabric={fabric}")], variables)
}

fn chosen_with(sets: &[&str], variables: &[(&str, &str)]) -> String {
    let config = with_sets("", sets).unwrap();
    let environment: Vec<_> =
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    match config.fabric(&environment) {
        Ok((Fabric::Alone, said)) => format!("alone: {said}"),
        Ok((Fabric::Sockets(membership), said)) => {
            format!("{} of {}: {said}", membership.process, membership.processes)
        }
        #[cfg(feature = "mpi")]
        Ok((Fabric::Mpi(membership), said)) => {
            format!("{} of {}: {said}", membership.process, membership.processes)
        }
        Err(error) => error.to_string(),
    }
}

/// Variables of a run by sockets.
const SOCKETS: [(&str, &str); 4] =
    [("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "a"), ("MASTER_PORT", "1")];

/// Variables of a run by `mpirun`.
const MPIRUN: [(&str, &str); 2] = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2")];

#[test]
fn auto_takes_one_process_or_sockets_where_no_mpi_launcher_is() {
    assert_eq!(chosen("auto", &[]), "alone: channels: one process; nothing says that there are more");
    assert_eq!(
        chosen("auto", &SOCKETS),
        "1 of 2: sockets between 2 processes: no MPI launcher has started it"
    );
}

#[test]
fn sockets_are_taken_where_they_are_asked_for_and_a_place_is_known() {
    let said = "1 of 2: sockets between 2 processes: launch.fabric says so";
    assert_eq!(chosen("sockets", &SOCKETS), said);
    assert_eq!(chosen("sockets", &[SOCKETS, SOCKETS].concat()), said);
    assert_eq!(chosen("sockets", &[&SOCKETS[..], &MPIRUN].concat()), said);
    let refused = "launch.fabric is \"sockets\", but nothing says which of several processes this is: set \
                   WORLD_SIZE and RANK, or leave launch.fabric out";
    assert_eq!(chosen("sockets", &[]), refused);
    assert_eq!(
        chosen("sockets", &MPIRUN),
        "OMPI_COMM_WORLD_SIZE is 2, but nobody says where process 0 listens: set MASTER_ADDR and \
         MASTER_PORT, or launch.address = \"host:port\""
    );
}

#[cfg(feature = "mpi")]
#[test]
fn auto_takes_mpi_under_each_of_its_launchers() {
    for [number, size] in [
        ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"],
        ["PMI_RANK", "PMI_SIZE"],
        ["PMIX_RANK", "SLURM_STEP_NUM_TASKS"],
    ] {
        let said =
            format!("3 of 4: mpi between 4 processes: {size} is set, so an MPI launcher has started it");
        let of_slurm = |value| match number {
            "PMIX_RANK" => ("SLURM_PROCID", value),
            _ => (number, value),
        };
        assert_eq!(chosen("auto", &[(number, "3"), (size, "4"), of_slurm("3")]), said);
        let alone = chosen("auto", &[(number, "0"), (size, "1"), of_slurm("0")]);
        assert_eq!(alone, "alone: channels: one process; nothing says that there are more");
    }
}

#[cfg(feature = "mpi")]
#[test]
fn mpi_is_refused_without_its_launcher_and_beside_other_numbers() {
    assert_eq!(chosen("mpi", &MPIRUN), "1 of 2: mpi between 2 processes: launch.fabric says so");
    assert_eq!(
        chosen("mpi", &SOCKETS),
        "launch.fabric is \"mpi\", but no MPI launcher has started several processes: start them with \
         `mpirun -n 4 pipewright train ...` or `srun --mpi=pmix pipewright train ...`"
    );
    for fabric in ["auto", "mpi"] {
        assert!(chosen(fabric, &[&SOCKETS[..], &MPIRUN].concat()).starts_with("1 of 2: mpi"));
        for given in [
            &[("RANK", "0"), ("WORLD_SIZE", "2")][..],
            &[("RANK", "1"), ("WORLD_SIZE", "4")],
            &[("WORLD_SIZE", "1")],
        ] {
            let said = chosen(fabric, &[given, &MPIRUN].concat());
            has(&said, &["but OMPI_COMM_WORLD_RANK=1 and OMPI_COMM_WORLD_SIZE=2: the launchers"]);
        }
    }
}

#[cfg(feature = "mpi")]
#[test]
fn what_mpi_carries_is_not_encrypted_so_that_is_refused() {
    assert_eq!(
        chosen_with(&["launch.tls=true"], &MPIRUN),
        "launch.tls is true, but MPI connects the processes, and encrypts nothing that it is told to: set \
         launch.fabric = \"sockets\", or leave launch.tls out"
    );
}

#[cfg(not(feature = "mpi"))]
#[test]
fn a_build_without_mpi_says_how_to_build_it_with_mpi() {
    for variables in [&[][..], &SOCKETS, &MPIRUN] {
        assert_eq!(
            chosen("mpi", variables),
            "launch.fabric is \"mpi\", but this program was built without MPI: install Open MPI or MPICH \
             with its headers, and libclang, and build it with `cargo build --release --features mpi`"
        );
    }
    assert_eq!(
        chosen("auto", &[&SOCKETS[..], &MPIRUN].concat()),
        "1 of 2: sockets between 2 processes: this build has no MPI"
    );
}

#[test]
fn another_fabric_and_two_at_once_are_refused() {
    all_refused(&[
        (
            "[launch]\nfabric = 'mpii'",
            &["launch.fabric: expected one of `auto`, `sockets`, `mpi`, got \"mpii\": did you mean \"mpi\"?"],
        ),
        (
            "[launch]\nfabric = 'mpi'\naddress = 'a:1'",
            &["my.toml:3: launch.address is for launch.fabric = \"auto\" or \"sockets\", and this \
               config has \"mpi\": remove one of the two"],
        ),
        (
            "[launch]\ndeadline = 9223372036854775807",
            &["my.toml:2: launch.deadline: 9223372036854775807 is too large: at most 31536000 seconds"],
        ),
    ]);
}

#[test]
fn a_silence_of_no_time_or_of_more_than_a_day_is_refused() {
    let silence = |seconds| chosen("auto", &[&SOCKETS[..], &[("PIPEWRIGHT_SILENCE", seconds)]].concat());
    for seconds in ["0", "86401", "4294967295"] {
        assert_eq!(
            silence(seconds),
            format!(
                "PIPEWRIGHT_SILENCE is {seconds}: give 1 to 86400 seconds, after which a silent process \
                 counts as gone"
            )
        );
    }
    assert!(silence("86400").starts_with("1 of 2: sockets"));
}

#[test]
fn metrics_are_served_to_this_machine_alone_unless_an_address_is_given() {
    let listen = |text: &str| {
        let config = Config::parse("my.toml", text, &[], &["metrics.listen=9401".to_owned()]);
        config.expect("a config").metrics.listen.map(|address| address.to_string())
    };
    assert_eq!(listen("").as_deref(), Some("127.0.0.1:9401"));
    let file = |text: &str| Config::parse("my.toml", text, &[], &[]).expect("a config").metrics.listen;
    assert_eq!(file(""), None);
    for (text, address) in [("9400", "127.0.0.1:9400"), ("'0.0.0.0:9400'", "0.0.0.0:9400")] {
        let found = file(&format!("[metrics]\nlisten = {text}"));
        assert_eq!(found.map(|found| found.to_string()).as_deref(), Some(address));
    }
}

#[test]
fn what_is_for_sockets_is_refused_with_mpi() {
    all_refused(&[
        ("[launch]\nfabric = 'mpi'\ntls = true", &["launch.tls"]),
        ("[launch]\nfabric = 'mpi'\ntoken_file = 'here'", &["launch.token_file"]),
    ]);
}

#[test]
fn the_secret_is_not_compared_as_a_setting() {
    let config = |text: &str| Config::parse("my.toml", text, &[], &[]).expect("a config");
    let said = |text: &str| config(text).in_common().expect("TOML");
    assert_eq!(said("[launch]\ntls = true\ntoken_file = 'here'"), said(""));
}
