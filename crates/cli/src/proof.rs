//! A proof that it is the user, asked for where the server wants a recent one.
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    failure::{Failure, Result},
    output::{ask, ask_hidden, error_line},
    server::{Extra, Server, body_of},
};

/// What it proves counts in the session for ten minutes.
const ROUTE: &str = "/auth/reauthenticate";

/// What a user can type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Proof {
    Password,
    Code,
}

/// Asks the user, and proves it in the session. `false` where only another sign-in would do, such as one with a passkey.
pub async fn confirm(server: &Server) -> Result<bool> {
    let Err(refused) = offer(server, &json!({})).await else { return Ok(true) };
    let methods = refused.problem.as_deref().map(|problem| problem["methods"].clone()).unwrap_or_default();
    let Some(proof) = wanted(&methods) else { return Ok(false) };
    error_line("Confirm that it is you to continue.");
    let (name, typed) = match proof {
        Proof::Password => ("password", ask_hidden("Password: ")?),
        Proof::Code => ("code", ask("Code of your second factor: ")?),
    };
    if typed.is_empty() {
        return Err(Failure::failed("Cancelled."));
    }
    offer(server, &json!({ name: typed })).await?;
    Ok(true)
}

async fn offer(server: &Server, proof: &Value) -> Result<Value> {
    let body = Some(proof.to_string().into_bytes());
    let extra = Extra { body, content_type: "application/json", ..Extra::default() };
    body_of(server.send(Method::POST, ROUTE, &extra).await?).await
}

fn wanted(methods: &Value) -> Option<Proof> {
    let has = |name: &str| methods.as_array().is_some_and(|methods| methods.iter().any(|one| one == name));
    if has("totp") || has("recovery") {
        Some(Proof::Code)
    } else if has("password") {
        Some(Proof::Password)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_is_asked_for_what_the_account_has() {
        assert_eq!(wanted(&json!(["password"])), Some(Proof::Password));
        assert_eq!(wanted(&json!(["passkey", "totp", "recovery"])), Some(Proof::Code));
        // Another sign-in, which cannot be done here.
        assert_eq!(wanted(&json!(["passkey"])), None);
        assert_eq!(wanted(&json!(["magic_link", "provider"])), None);
        assert_eq!(wanted(&Value::Null), None);
    }
}
