//! What many scenarios stand on: somebody with an account, an organization and an app of theirs, signed in.
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::Result;
use serde_json::{Value, json};

use crate::{
    client::{self, Who, ask, text},
    identity::{login, register},
    process::{Core, Server},
    servers::JanuaBinary,
};

pub struct Ground {
    pub server: Server,
    /// The owner's own session.
    pub token: String,
    pub org: String,
    pub app: String,
    /// A secret key of the app.
    pub secret: String,
    /// The owner's session in the app.
    pub in_app: String,
}

impl Ground {
    pub fn lay(janua: &JanuaBinary, folder: &Path, core: Core, settings: &[(&str, &str)]) -> Result<Self> {
        let server = janua.serve_with(folder, core, settings)?;
        let address = server.address;
        register(&server, folder)?;
        let nobody = Who::default();
        let token = text(&ask(address, "POST", "/auth/login", &nobody, &login())?, "accessToken")?;
        let owner = Who::with(&token);
        let app = ask(address, "POST", "/apps", &owner, &json!({ "name": "Bench" }))?;
        let (org, app) = (text(&app, "orgId")?, text(&app, "id")?);
        let key = |kind: &str| {
            let wanted = json!({ "type": kind, "environment": "live" });
            text(&ask(address, "POST", &format!("/apps/{app}/keys"), &owner, &wanted)?, "value")
        };
        let (publishable, secret) = (key("publishable")?, key("secret")?);
        let entered = ask(address, "POST", "/auth/login", &Who::through(&publishable), &login())?;
        let in_app = text(&entered, "accessToken")?;
        Ok(Self { server, token, org, app, secret, in_app })
    }

    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    pub fn asks(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        ask(self.address(), method, path, &Who::with(&self.token), body)
    }

    /// An app looks at a token of its own.
    pub fn introspection(&self, connection: &str) -> Vec<u8> {
        let body = json!({ "token": self.in_app }).to_string();
        client::request("POST", "/oauth/introspect", &Who::through(&self.secret), &body, connection)
    }

    /// Changes a row and writes down who did it.
    pub fn profile_change(&self) -> Vec<u8> {
        client::request("PATCH", "/user/profile", &Who::with(&self.token), r#"{"name":"Bench"}"#, "keep-alive")
    }
}

/// Where a data folder keeps its database.
pub fn database(folder: &Path) -> PathBuf {
    folder.join("janua.db")
}
