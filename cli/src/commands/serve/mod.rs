//! `pipewright serve`: a model answers requests in the form of OpenAI's API.

mod answer;
mod calls;
mod fields;
mod parse;
mod queue;
mod refusal;
mod request;
mod scored;
mod served;
mod server;
mod stream;
mod tools;
mod worker;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;

use super::report::address;
use super::sample::chats::Chats;
use super::sample::launch;
use super::sample::source::Source;
use super::sample::spread::Spread;
use crate::error::{Error, Result};
use crate::http;
use pipewright::error::RunError;
use queue::Queue;
use served::{Served, now};

/// Answer chats and complete texts over HTTP, in the form of OpenAI's API
///
/// Programs that talk with OpenAI talk with a model of yours: they need only another address. Requests are
/// answered one after the other, whole or as a stream. The paths are /v1/chat/completions, /v1/completions,
/// /v1/models and /health. A field of a request that would change the answer and is not known is refused.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pipewright serve models/smollm2
  pipewright serve models/smollm2 --listen 8080 --name small --queue 4
  pipewright serve runs/gpt-text --listen 0.0.0.0:8000 --token SECRET
  curl http://127.0.0.1:8000/v1/chat/completions -H \"Content-Type: application/json\" \\
      -d '{\"model\": \"smollm2\", \"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'

In Python:
  client = openai.OpenAI(base_url=\"http://127.0.0.1:8000/v1\", api_key=\"none\")
  messages = [{\"role\": \"user\", \"content\": \"Hello\"}]
  client.chat.completions.create(model=\"smollm2\", messages=messages)")]
pub(super) struct Args {
    /// The folder of a run, for its newest checkpoint; of a checkpoint; or of a model in Hugging Face's form
    path: PathBuf,
    /// Where it listens: a port of this machine, or an address and a port that others reach too, which needs
    /// a token. 0 is any free port
    #[arg(long, value_name = "ADDRESS", default_value = "8000", value_parser = address)]
    listen: SocketAddr,
    /// Answer only requests with the header `Authorization: Bearer TOKEN`. Others on this machine see it in
    /// the list of processes; the environment variable PIPEWRIGHT_TOKEN says it too, and they do not
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// The name of the model in requests [default: the name of the folder]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// How many requests may wait for the model. More are refused, with the status 503
    #[arg(long, default_value_t = 16, value_name = "N")]
    queue: usize,
    #[command(flatten)]
    spread: Spread,
}

/// The variable that may have the token.
const TOKEN: &str = "PIPEWRIGHT_TOKEN";

pub(super) fn run(args: &Args) -> Result<()> {
    let token = token(args)?;
    let name = name(args)?;
    args.spread.enter();
    let source = Source::open(&args.path).map_err(Error::not_begun)?;
    args.spread.check(&source.model)?;
    // Before a large model is read.
    let listener = http::listen(args.listen).map_err(|error| refuse(args.listen, error))?;
    let address = listener.local_addr().map_err(|error| refuse(args.listen, error))?;
    let mut model = launch(&args.spread, source.model)?;
    if source.text.tokenizer.is_some()
        && let Err(error) = Chats::of(&source.text)
    {
        super::warn([format!("this model only completes texts: {error}")]);
    }
    let served = Arc::new(Served {
        name,
        text: source.text,
        writing: source.writing,
        token,
        queue: Queue::new(args.queue),
        since: now(),
        numbers: AtomicU64::new(0),
    });
    tell(address, &served)?;
    let taking = take(listener, address, Arc::clone(&served))?;
    let answered = worker::answer_all(&served, &mut model);
    served.queue.close();
    answered?;
    taking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Starts the thread that takes requests. When it ends, the queue is closed.
fn take(
    listener: TcpListener,
    address: SocketAddr,
    served: Arc<Served>,
) -> Result<thread::JoinHandle<Result<()>>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| refuse(address, error))?;
    let thread = thread::Builder::new().name("requests".to_owned()).spawn(move || {
        let taken = runtime.block_on(server::take(listener, Arc::clone(&served)));
        served.queue.close();
        taken.map_err(|error| refuse(address, error))
    });
    thread.map_err(|error| refuse(address, error))
}

fn tell(address: SocketAddr, served: &Served) -> Result<()> {
    if !address.ip().is_loopback() {
        eprintln!("warning: what goes to and from {address} is not encrypted, with its token");
    }
    super::print(&format!(
        "`{}` answers at http://{address}/v1 ({} tokens of context); Ctrl-C ends this\n",
        served.name, served.writing.context
    ))
}

fn refuse(address: SocketAddr, source: io::Error) -> Error {
    RunError::because(
        format!("cannot serve on {address}: {source}; choose another port with --listen PORT"),
        source,
    )
    .into()
}

/// What requests have to know.
fn token(args: &Args) -> Result<Option<String>> {
    let token = args.token.clone().or_else(|| std::env::var(TOKEN).ok());
    if token.is_none() && !args.listen.ip().is_loopback() {
        let address = args.listen;
        return Err(Error::refused(format!(
            "--listen: others reach {address}, and anyone could use the model: set --token TOKEN or \
             {TOKEN}, or listen on this machine only, with --listen {}",
            address.port()
        )));
    }
    match token {
        Some(token) if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Err(Error::refused("--token: a token has letters, digits and signs of ASCII, without spaces"))
        }
        token => Ok(token),
    }
}

/// What requests call the model.
fn name(args: &Args) -> Result<String> {
    let of_folder = |path: &Path| Some(path.canonicalize().ok()?.file_name()?.to_string_lossy().into_owned());
    match args.name.clone().or_else(|| of_folder(&args.path)) {
        Some(name) if !name.is_empty() => Ok(name),
        Some(_) => Err(Error::refused("--name: it is empty")),
        // The path is refused when it is opened.
        None => Ok(args.path.display().to_string()),
    }
}
