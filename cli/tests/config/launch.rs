//! What launchers say of a process, by the variables that they set.

use pipewright::mesh::Map;
use pipewright_cli::config::{Launched, Launcher, launched, processes};

use super::*;

/// Variables as `NAME=value`, with spaces between them.
fn environment(text: &str) -> Vec<(String, String)> {
    let pair = |word: &str| word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    text.split_whitespace().map(|word| pair(word).expect("NAME=value")).collect()
}

/// What `srun -n 4` sets in its second task, on two hosts.
const SRUN: &str = "SLURM_JOB_ID=1234 SLURM_STEP_ID=2 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4 SLURM_NTASKS=4 \
    SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=node[07-08] SLURM_LOCALID=1 SLURM_STEP_TASKS_PER_NODE=2(x2)";

/// What `mpirun -n 4` of Open MPI sets in its third process, on one host.
const MPIRUN: &str = "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=2 \
    OMPI_COMM_WORLD_LOCAL_SIZE=4 PMIX_NAMESPACE=933101569 PMIX_RANK=2";

/// What `mpiexec -n 2` of MPICH sets in its second process, on one host.
const MPIEXEC: &str = "PMI_RANK=1 PMI_SIZE=2 PMI_FD=8 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2";

/// What `torchrun --nnodes 2 --nproc-per-node 2` sets in its last process.
const TORCHRUN: &str = "RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 MASTER_ADDR=node07 MASTER_PORT=29500 \
    TORCHELASTIC_RUN_ID=mine TORCHELASTIC_USE_AGENT_STORE=True";

/// What a batch script of Slurm has itself, of a job with 4 tasks.
const BATCH: &str = "SLURM_JOB_ID=1234 SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_NODELIST=node[07-08]";

/// What `jsrun -n 4` sets in its second task, on one host. It sets the variables of Open MPI too.
const JSRUN: &str = "JSM_NAMESPACE_RANK=1 JSM_NAMESPACE_SIZE=4 JSM_NAMESPACE_LOCAL_RANK=1 \
    JSM_NAMESPACE_LOCAL_SIZE=4 LSB_JOBID=77 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4";

/// What `mpiexec -n 24 --ppn 12` of PALS sets in its sixth process. It sets the variables of MPICH too.
const PALS: &str = "PALS_RANKID=5 PALS_LOCAL_RANKID=5 PALS_APID=9f1 PMI_RANK=5 PMI_SIZE=24 PMI_LOCAL_SIZE=12";

/// What `mpirun_rsh -np 2` of MVAPICH sets in its second process, on one host.
const MVAPICH: &str = "MV2_COMM_WORLD_RANK=1 MV2_COMM_WORLD_SIZE=2 MV2_COMM_WORLD_LOCAL_SIZE=2";

/// What `flux run -n 4` sets in its last task, on one host.
const FLUX: &str = "FLUX_TASK_RANK=3 FLUX_JOB_SIZE=4 FLUX_JOB_NNODES=1 FLUX_JOB_ID=f2Ab";

fn found(text: &str) -> Option<Launched> {
    launched(&environment(text)).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Process, processes, and where process 0 listens.
fn told(text: &str) -> Option<(u32, u32, Option<String>)> {
    found(text).map(|found| (found.process, found.processes, found.address()))
}

#[test]
fn each_launcher_is_found_by_what_it_sets() {
    let at = |process, processes, address: &str| Some((process, processes, Some(address.to_owned())));
    let nowhere = |process, processes| Some((process, processes, None));
    let cases = [
        ("", None),
        ("WORLD_SIZE=1", None),
        ("WORLD_SIZE=1 RANK=0", None),
        ("WORLD_SIZE=", None),
        ("RANK=0", None),
        ("WORLD_SIZE=2 RANK=1", nowhere(1, 2)),
        ("WORLD_SIZE=2 RANK=1 MASTER_ADDR=a MASTER_PORT=7", at(1, 2, "a:7")),
        ("WORLD_SIZE=2 RANK=1 MASTER_ADDR=::1 MASTER_PORT=7", at(1, 2, "[::1]:7")),
        ("WORLD_SIZE=2 RANK=1 MASTER_ADDR=a", nowhere(1, 2)),
        ("WORLD_SIZE=2 RANK=1 MASTER_ADDR=[::1] MASTER_PORT=7", at(1, 2, "[::1]:7")),
        (MPIRUN, at(2, 4, "127.0.0.1:22561")),
        (MPIEXEC, at(1, 2, "127.0.0.1:20000")),
        (SRUN, at(1, 4, "node07:28186")),
        (BATCH, None),
        (TORCHRUN, at(3, 4, "node07:20519")),
        (JSRUN, at(1, 4, "127.0.0.1:22090")),
        (PALS, nowhere(5, 24)),
        (MVAPICH, at(1, 2, "127.0.0.1:20000")),
        (FLUX, at(3, 4, "127.0.0.1:27559")),
        ("JOB_COMPLETION_INDEX=3 WORLD_SIZE=4", nowhere(3, 4)),
        (
            "JOB_COMPLETION_INDEX=3 WORLD_SIZE=4 MASTER_ADDR=my-job-0.my-job",
            at(3, 4, "my-job-0.my-job:20000"),
        ),
        // The pods of a Job that says no number work by themselves.
        ("JOB_COMPLETION_INDEX=3", None),
        // Pods of several Jobs of a JobSet: all have the same number in their Job.
        ("JOB_COMPLETION_INDEX=0 WORLD_SIZE=4 RANK=2 MASTER_ADDR=a MASTER_PORT=7", at(2, 4, "a:7")),
    ];
    for (variables, expected) in cases {
        assert_eq!(told(variables), expected, "{variables}");
        let numbers = processes(&environment(variables)).expect("it was found");
        assert_eq!(numbers, expected.map(|(process, processes, _)| [process, processes]));
    }
}

#[test]
fn the_launcher_is_named() {
    let named = |text: &str| found(text).expect("several processes").launcher.to_string();
    assert_eq!(named("RANK=0 WORLD_SIZE=2"), "as RANK and WORLD_SIZE say");
    assert_eq!(named(MPIRUN), "as mpirun says (Open MPI)");
    assert_eq!(named(MPIEXEC), "as mpiexec says (MPICH)");
    assert_eq!(named(SRUN), "as Slurm says (step 1234.2)");
    assert_eq!(named(TORCHRUN), "as torchrun says (run mine)");
    assert_eq!(named("JOB_COMPLETION_INDEX=1 WORLD_SIZE=2"), "as Kubernetes says");
    assert_eq!(named(JSRUN), "as jsrun says");
    assert_eq!(named(PALS), "as mpiexec says (PALS)");
    assert_eq!(named(MVAPICH), "as mpirun_rsh says (MVAPICH)");
    assert_eq!(named(FLUX), "as Flux says");
}

#[test]
fn blanks_around_a_number_or_an_address_do_not_count() {
    let given = [("WORLD_SIZE", "2 "), ("RANK", " 1"), ("MASTER_ADDR", "a "), ("MASTER_PORT", " 7\n")];
    let given = given.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let found = launched(&given).expect("it is right").expect("two processes");
    assert_eq!((found.process, found.address()), (1, Some("a:7".to_owned())));
}

#[test]
fn the_inner_one_of_two_launchers_counts() {
    let of = |texts: &[&str]| {
        let found = found(&texts.join(" ")).expect("several processes");
        (found.process, found.processes, found.launcher.names()[1])
    };
    let helper = "SLURM_JOB_ID=1234 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=3";
    assert_eq!(of(&[helper, MPIRUN]), (2, 4, "OMPI_COMM_WORLD_SIZE"));
    assert_eq!(of(&[BATCH, MPIRUN]), (2, 4, "OMPI_COMM_WORLD_SIZE"));
    assert_eq!(of(&[helper, "PMI_RANK=5 PMI_SIZE=6"]), (5, 6, "PMI_SIZE"));
    assert_eq!(of(&[SRUN, TORCHRUN]), (3, 4, "WORLD_SIZE"));
    assert_eq!(of(&["JOB_COMPLETION_INDEX=1", TORCHRUN]), (3, 4, "WORLD_SIZE"));
    assert_eq!(of(&["OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2", TORCHRUN]), (3, 4, "WORLD_SIZE"));
    // A shell in an allocation, and what is started from it by hand.
    let shell =
        "SLURM_JOB_ID=1234 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 PMI_RANK=0 PMI_SIZE=1";
    assert_eq!(of(&[shell, "RANK=1 WORLD_SIZE=2"]), (1, 2, "WORLD_SIZE"));
    assert_eq!(found(shell), None);
    assert_eq!(of(&["JOB_COMPLETION_INDEX=0", SRUN]), (1, 4, "SLURM_STEP_NUM_TASKS"));
}

#[test]
fn two_launchers_that_say_the_same_are_one() {
    // `srun --mpi=pmi2`, and the variables that scripts for PyTorch set.
    let same = format!("{SRUN} PMI_RANK=1 PMI_SIZE=4 RANK=1 WORLD_SIZE=4");
    assert!(matches!(found(&same).expect("several").launcher, Launcher::Slurm { .. }));
    let elsewhere = format!("{SRUN} MASTER_ADDR=10.0.0.1 MASTER_PORT=7");
    assert_eq!(told(&elsewhere), Some((1, 4, Some("10.0.0.1:7".to_owned()))));
    let port = format!("{SRUN} MASTER_PORT=7");
    assert_eq!(told(&port), Some((1, 4, Some("node07:7".to_owned()))));
    let both = format!("{MPIRUN} PMI_RANK=2 PMI_SIZE=4");
    assert_eq!(found(&both).expect("several").launcher, Launcher::OpenMpi);
}

#[test]
fn process_0_of_slurm_is_on_the_first_host_of_the_list() {
    let cases = [
        ("node01", "node01"),
        ("node01,node02", "node01"),
        ("node[01-03,07]", "node01"),
        ("node[07,01-03],login", "node07"),
        ("rack[1-2]-node[003-004].lan,login", "rack1-node003.lan"),
        ("[10-12]", "10"),
        ("gpu-a[1]", "gpu-a1"),
    ];
    for (list, expected) in cases {
        let variables = SRUN.replace("node[07-08]", list);
        assert_eq!(found(&variables).expect("several").host.as_deref(), Some(expected), "{list}");
    }
    let one_host = SRUN.replace("SLURM_STEP_NUM_NODES=2", "SLURM_STEP_NUM_NODES=1");
    assert_eq!(found(&one_host).expect("several").host.as_deref(), Some("127.0.0.1"));
}

#[test]
fn jobs_and_steps_near_each_other_have_ports_of_their_own() {
    let mut ports: Vec<u16> = Vec::new();
    for job in 4990..5010 {
        for step in 0..10 {
            let variables =
                SRUN.replace("=1234", &format!("={job}")).replace("STEP_ID=2", &format!("STEP_ID={step}"));
            ports.push(found(&variables).expect("several").port.expect("a port"));
        }
    }
    assert!(ports.iter().all(|port| (20_000..30_000).contains(port)), "{ports:?}");
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 200);
}

#[test]
fn process_0_under_torchrun_does_not_take_the_port_of_its_agent() {
    for taken in 20_000..30_000_u32 {
        let variables = TORCHRUN.replace("29500", &taken.to_string());
        let port = found(&variables).expect("several").port.expect("a port");
        assert!(u32::from(port) != taken && (20_000..30_000).contains(&port), "{taken}: {port}");
    }
    let free = TORCHRUN.replace("STORE=True", "STORE=False");
    assert_eq!(found(&free).expect("several").port, Some(29_500));
}

#[test]
fn what_launchers_cannot_mean_is_refused_with_their_variables() {
    let cases = [
        ("WORLD_SIZE=two", "WORLD_SIZE is `two`, which is no number: give a whole number, 0 or more"),
        ("WORLD_SIZE=0 RANK=0", "WORLD_SIZE is 0: a run has 1 process or more"),
        ("WORLD_SIZE=1 RANK=2", "RANK is 2, but WORLD_SIZE is 1: processes have the numbers 0 to 0"),
        (
            "WORLD_SIZE=2",
            "WORLD_SIZE is 2, but RANK is not set: give each process its own, 0 to 1, or unset WORLD_SIZE \
             to run in one process",
        ),
        (
            "RANK=2",
            "RANK is 2, but WORLD_SIZE is not set: say how many processes there are, or unset RANK to run \
             in one process",
        ),
        (
            "WORLD_SIZE=2 RANK=0 MASTER_ADDR=a MASTER_PORT=0",
            "MASTER_PORT is `0`, which is no port: give a number from 1 to 65535",
        ),
        (
            "OMPI_COMM_WORLD_SIZE=2",
            "OMPI_COMM_WORLD_SIZE is 2, but OMPI_COMM_WORLD_RANK is not set: give each process its own, 0 \
             to 1, or unset OMPI_COMM_WORLD_SIZE to run in one process",
        ),
        ("PMI_SIZE=2 PMI_RANK=2", "PMI_RANK is 2, but PMI_SIZE is 2: processes have the numbers 0 to 1"),
        (
            "SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 SLURM_STEP_NODELIST=node[1-2",
            "SLURM_STEP_NODELIST is `node[1-2`, which is no list of hosts such as node[01-04]: set \
             launch.address",
        ),
        (
            "SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 SLURM_STEP_NODELIST=node[]",
            "SLURM_STEP_NODELIST is `node[]`, which is no list of hosts such as node[01-04]: set \
             launch.address",
        ),
        (
            "SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 SLURM_STEP_NODELIST=,a",
            "SLURM_STEP_NODELIST is `,a`, which is no list of hosts such as node[01-04]: set launch.address",
        ),
        (
            "JOB_COMPLETION_INDEX=4 WORLD_SIZE=4",
            "JOB_COMPLETION_INDEX is 4, but WORLD_SIZE is 4: processes have the numbers 0 to 3",
        ),
    ];
    for (variables, expected) in cases {
        let said = launched(&environment(variables)).expect_err(variables).to_string();
        assert_eq!(said, expected, "{variables}");
    }
}

#[test]
fn two_launchers_that_contradict_each_other_are_refused_with_both() {
    let ompi = "OMPI_COMM_WORLD_RANK=2 and OMPI_COMM_WORLD_SIZE=4";
    let cases = [
        (format!("{MPIRUN} RANK=1 WORLD_SIZE=4"), format!("RANK=1 and WORLD_SIZE=4, but {ompi}")),
        (format!("{MPIRUN} RANK=1"), format!("RANK=1, but {ompi}")),
        (format!("{MPIRUN} WORLD_SIZE=1"), format!("WORLD_SIZE=1, but {ompi}")),
        (format!("{MPIRUN} {MPIEXEC}"), format!("{ompi}, but PMI_RANK=1 and PMI_SIZE=2")),
        (
            format!("{SRUN} RANK=2 WORLD_SIZE=4"),
            "RANK=2 and WORLD_SIZE=4, but SLURM_PROCID=1 and SLURM_STEP_NUM_TASKS=4".to_owned(),
        ),
    ];
    for (variables, both) in cases {
        let said = launched(&environment(&variables)).expect_err(&variables).to_string();
        let expected = format!(
            "{both}: the launchers of this process contradict each other; start it with one of them, or \
             unset the variables of the other"
        );
        assert_eq!(said, expected);
    }
}

#[test]
fn the_address_of_the_config_comes_before_that_of_a_launcher() {
    let membership = |text: &str, variables: &str| {
        let config = Config::parse("my.toml", text, &[], &[]).expect("a config");
        config.membership(&environment(variables)).map(|found| found.expect("several"))
    };
    let own = "[launch]\naddress = 'here:9'\ndeadline = 5";
    for variables in [SRUN, MPIRUN, TORCHRUN, "RANK=0 WORLD_SIZE=2"] {
        let found = membership(own, variables).expect("an address");
        assert_eq!((&found.address[..], found.deadline.as_secs()), ("here:9", 5));
    }
    let found = membership("", SRUN).expect("an address");
    assert_eq!((found.process, found.processes, &found.address[..]), (1, 4, "node07:28186"));
    let several_hosts = MPIRUN.replace("LOCAL_SIZE=4", "LOCAL_SIZE=2");
    for (variables, names) in [
        (&several_hosts[..], "OMPI_COMM_WORLD_SIZE is 4"),
        ("RANK=0 WORLD_SIZE=2", "WORLD_SIZE is 2"),
        ("JOB_COMPLETION_INDEX=0 WORLD_SIZE=3", "WORLD_SIZE is 3"),
    ] {
        let expected = format!(
            "{names}, but nobody says where process 0 listens: set MASTER_ADDR and MASTER_PORT, or \
             launch.address = \"host:port\""
        );
        assert_eq!(membership("", variables).expect_err("no address").to_string(), expected);
    }
}

#[test]
fn the_map_is_a_word_that_all_processes_share() {
    let config = |text: &str| Config::parse("my.toml", text, &[], &[]).expect("a config");
    let (pipeline, replicas) = (config(""), config("[launch]\nmap = 'replicas'"));
    assert_eq!([pipeline.launch.map, replicas.launch.map], [Map::Pipeline, Map::Replicas]);
    let said = |config: &Config| config.in_common().expect("TOML");
    assert!(said(&replicas).contains("[launch]\nmap = \"replicas\"\n"), "{}", said(&replicas));
    // Where they meet, and for how long they wait, is not compared.
    assert_eq!(said(&config("[launch]\naddress = 'a:1'\ndeadline = 7")), said(&pipeline));
    all_refused(&[(
        "[launch]\nmap = 'hosts'",
        &["my.toml:2: launch.map: expected `pipeline` or `replicas`"],
    )]);
}
