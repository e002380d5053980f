//! The tools of a request: functions that the model may call.

use serde_json::Value;

use super::fields::Fields;
use super::refusal::Refusal;
use crate::commands::sample::chats::Chats;

/// Reads the fields about tools. Returns whether the model is shown any.
pub(super) fn read(fields: &mut Fields, chats: &Chats<'_>) -> Result<bool, Refusal> {
    let tools = match fields.take("tools") {
        None => Vec::new(),
        Some(Value::Array(tools)) => tools,
        Some(other) => return Err(Refusal::of("tools", format!("it is {other}, and a list was expected"))),
    };
    if let Some(index) = tools.iter().position(|tool| !is_function(tool)) {
        let problem = format!(
            "number {} is {}, and {{\"type\": \"function\", \"function\": {{\"name\": ...}}}} was expected",
            index + 1,
            tools[index]
        );
        return Err(Refusal::of("tools", problem));
    }
    let choice = fields.take("tool_choice").unwrap_or_else(|| "auto".into());
    if choice != "auto" && choice != "none" {
        let problem =
            format!("it is {choice}, and this server can only do \"auto\" and \"none\": leave it out");
        return Err(Refusal::of("tool_choice", problem).coded("unsupported_parameter"));
    }
    if tools.is_empty() || choice == "none" {
        return Ok(false);
    }
    if !chats.writes_tools() {
        let problem = "this model's template does not write them, so the model would not see them: write \
                       them into the system message, or leave them out";
        return Err(Refusal::of("tools", problem).coded("unsupported_parameter"));
    }
    if fields.take("parallel_tool_calls").is_some_and(|many| many == false) {
        let problem = "it is false, and a model may write several calls: leave it out";
        return Err(Refusal::of("parallel_tool_calls", problem).coded("unsupported_parameter"));
    }
    Ok(true)
}

fn is_function(tool: &Value) -> bool {
    tool["type"] == "function" && tool["function"]["name"].is_string()
}
