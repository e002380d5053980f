use pipewright::schedule::Schedule;

use super::*;

fn schedule(config: &Config) -> pipewright::Result<Schedule> {
    Ok(compose::plan(config)?.replicas.schedule(0).clone())
}

fn pipeline(keys: &str) -> String {
    format!("[pipeline]\n{keys}")
}

#[test]
fn stages_over_chunks_are_the_ranks() {
    let ranks = |keys: &str| {
        let schedule = schedule(&parse(&pipeline(keys)).unwrap()).unwrap();
        (schedule.name().to_owned(), schedule.ranks(), schedule.stages())
    };
    let is = |name: &str, ranks, stages| (name.to_owned(), ranks, stages);
    assert_eq!(ranks("stages = 4"), is("1f1b", 4, 4));
    let interleaved = "schedule = 'interleaved-1f1b'\nstages = 6";
    assert_eq!(ranks(interleaved), is("interleaved-1f1b", 3, 6));
    assert_eq!(ranks(&format!("{interleaved}\nchunks = 3")), is("interleaved-1f1b", 2, 6));
    assert_eq!(ranks("schedule = 'dualpipe-v'\nstages = 4"), is("dualpipe-v", 2, 4));
}

#[test]
fn stages_and_chunks_that_do_not_go_with_the_schedule_are_refused() {
    all_refused(&[
        (
            "[pipeline]\nschedule = 'interleaved-1f1b'\nstages = 5",
            &["my.toml:3: pipeline.stages: 5, but schedule interleaved-1f1b wants 2 on each rank: use 4 or \
                 6"],
        ),
        (
            "[pipeline]\nschedule = 'dualpipe-v'\nstages = 1",
            &["my.toml:3: pipeline.stages: 1, but schedule dualpipe-v wants 2 on each rank: use 2"],
        ),
        (
            "[pipeline]\nchunks = 2",
            &["my.toml:2: pipeline.chunks: 2, but schedule 1f1b has 1 on each rank: change this or leave \
                 it out"],
        ),
        (
            "[pipeline]\nschedule = 'looped-bfs'\nchunks = 1",
            &["pipeline.chunks: 1, but schedule looped-bfs has 2 or more on each rank"],
        ),
        ("[pipeline]\nchunks = 0", &["pipeline.chunks: is 0"]),
    ]);
}

/// A config whose schedule is in a file with this text; and the file's path.
fn with_file(csv: &str, keys: &str) -> (Config, String, tempfile::TempDir) {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("mine.csv");
    fs::write(&path, csv).unwrap();
    let path = path.display().to_string();
    let text = pipeline(&format!("schedule = 'file:{path}'\n{keys}"));
    (parse(&text).unwrap(), path, folder)
}

#[test]
fn a_schedule_of_ones_own_is_read_from_its_file() {
    let csv = "0F0,3F0,0F1,3B0,0B0,3F1,3B1,0B1\n1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1\n";
    let (config, _, _folder) = with_file(csv, "stages = 4\nmicro_batches = 2");
    let schedule = schedule(&config).unwrap();
    assert_eq!((schedule.name(), schedule.csv()), ("mine", csv.to_owned()));
    assert_eq!(schedule.placement().to_string(), "0,1,1,0");
}

#[test]
fn a_file_that_does_not_fit_is_refused_with_the_key_or_the_cell() {
    let csv = "0F0,0B0\n1F0,1B0\n";
    let refusal = |csv: &str, keys: &str| {
        let (config, path, _folder) = with_file(csv, keys);
        let refusal = schedule(&config).unwrap_err().to_string();
        refusal.replace(&path, "mine.csv")
    };
    assert_eq!(
        refusal(csv, "stages = 3\nmicro_batches = 1"),
        "my.toml:3: pipeline.stages: 3, but the schedule in mine.csv has 2: set this to 2"
    );
    assert_eq!(
        refusal(csv, "stages = 2\nmicro_batches = 4"),
        "my.toml:4: pipeline.micro_batches: 4, but the schedule in mine.csv has 1: set this to 1"
    );
    assert_eq!(
        refusal(csv, "stages = 2\nmicro_batches = 1\nchunks = 2"),
        "my.toml:5: pipeline.chunks: 2, but the ranks of the schedule in mine.csv have [1, 1] stages: leave \
         this out"
    );
    assert_eq!(
        refusal("0F0,0B0\n1F0,1C0\n", ""),
        "my.toml:2: pipeline.schedule: mine.csv: rank 1, entry 1: \"1C0\" is not an action; known are 2F0, \
         2B0, 2I0, 2W0, 2SEND_F0, 2RECV_F0, 2SEND_B0, 2RECV_B0 (stage, action, micro-batch), 2REDUCE_GRAD \
         and 2STEP (stage)"
    );
    let gone = schedule(&parse("[pipeline]\nschedule = 'file:none.csv'").unwrap());
    assert!(
        gone.unwrap_err().to_string().starts_with("my.toml:2: pipeline.schedule: cannot read none.csv: ")
    );
    let nameless = schedule(&parse("[pipeline]\nschedule = 'file:'").unwrap());
    assert_eq!(
        nameless.unwrap_err().to_string(),
        "my.toml:2: pipeline.schedule: `file:` names no file: write file:PATH, such as file:my.csv"
    );
}

#[test]
fn an_unknown_schedule_is_told_from_those_that_there_are() {
    all_refused(&[(
        "[pipeline]\nschedule = '1f1c'",
        &[
            "my.toml:2: pipeline.schedule: there is no schedule \"1f1c\", did you mean 1f1b? (known: gpipe, ",
            "dualpipe-v; or auto, or file:PATH)",
        ],
    )]);
}
