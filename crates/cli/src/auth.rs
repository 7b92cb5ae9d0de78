//! `login`, `logout`, `whoami`, `use`: the session of this machine.
use std::{
    process::{Command, Stdio},
    time::Duration,
};

use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    Options,
    failure::{Failure, Kind, Result},
    output::{error_line, text_at},
    profile::{self, Locked, Profile, Project},
    server::{Extra, Server, body_of, is_on_this_machine},
};

#[derive(clap::Args)]
pub struct Login {
    /// Only print the URL and the code
    #[arg(long)]
    no_browser: bool,
}

/// The device grant (RFC 8628): the code is shown here, and approved where a browser is signed in.
pub async fn login(server: &Server, wishes: &Login) -> Result<()> {
    if server.has_own_token() {
        return Err(Failure::usage("JANUA_TOKEN is set and would be used instead. Unset it to sign in."));
    }
    let asked = server.request(Method::POST, "/auth/device/code").json(&json!({}));
    let begun = body_of(asked.send().await.map_err(|error| server.unreachable(&error))?).await?;
    let (code, plain, whole) = (
        text_at(&begun, "user_code"),
        text_at(&begun, "verification_uri"),
        text_at(&begun, "verification_uri_complete"),
    );
    let opened = !wishes.no_browser && server.out.asks && open(&whole);
    // The question goes to stderr: stdout has the answer alone.
    // A phone cannot open a page of this machine.
    let is_here = whole.parse::<url::Url>().is_ok_and(|url| is_on_this_machine(&url));
    if server.out.asks
        && !is_here
        && let Some(code) = qr_code(&whole)
    {
        error_line(&code);
    }
    let how = if opened { "Your browser opens" } else { "Open" };
    error_line(&format!("{how} {plain}\nand confirm the code  {}\n", server.out.bold(&code)));
    error_line("Waiting for confirmation. Ctrl-C cancels.");
    let profile = wait(server, &begun).await?;
    let email = profile.email.clone();
    let mut locked = Locked::open()?;
    locked.credentials.profiles.insert(server.profile.clone(), profile);
    locked.save()?;
    let answer = json!({ "profile": server.profile, "url": server.url, "email": email });
    server.out.answer(&answer, |out| {
        let who = email.clone().unwrap_or_default();
        out.line(&format!("{} Signed in to {} as {who} (profile {}).", out.green("✓"), server.url, server.profile));
    });
    Ok(())
}

/// Polls until the user approved or denied the code, at the interval that the server asks for.
async fn wait(server: &Server, begun: &Value) -> Result<Profile> {
    let mut pause = begun["interval"].as_u64().unwrap_or(5);
    loop {
        tokio::time::sleep(Duration::from_secs(pause)).await;
        let body = json!({ "device_code": begun["device_code"] });
        let asked = server.request(Method::POST, "/auth/device/token").json(&body);
        // A connection that fails once is no reason to start again: the code lives for ten minutes.
        let Ok(answer) = asked.send().await else { continue };
        match body_of(answer).await {
            Ok(body) => {
                let profile = Profile::from_answer(&server.url, &body);
                return profile.ok_or_else(|| Failure::failed("The answer has no token. Is this a Janua server?"));
            }
            Err(refused) if refused.code == "authorization_pending" => {}
            Err(refused) if refused.code == "slow_down" => pause += 5,
            Err(refused) if refused.code == "access_denied" => return Err(Failure { kind: Kind::Auth, ..refused }),
            Err(refused) => return Err(refused),
        }
    }
}

fn qr_code(text: &str) -> Option<String> {
    fast_qr::QRBuilder::new(text).build().ok().map(|code| code.to_str())
}

/// Opens a page with whatever this system has for that.
fn open(url: &str) -> bool {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let quiet = || Stdio::null();
    Command::new(program).arg(url).stdin(quiet()).stdout(quiet()).stderr(quiet()).spawn().is_ok()
}

/// Ends the session on the server, and forgets it here. It is forgotten even if the server is away.
pub async fn logout(server: &Server) -> Result<()> {
    let stored = profile::read()?.profiles.contains_key(&server.profile);
    if !stored {
        return Err(Failure::auth(format!("Profile {} is not signed in.", server.profile)));
    }
    let ended = server.send(Method::POST, "/auth/logout", &Extra::default()).await;
    let mut locked = Locked::open()?;
    locked.credentials.profiles.remove(&server.profile);
    locked.save()?;
    match ended {
        Ok(answer) if answer.status().is_success() || answer.status() == 401 => {}
        // It had ended already.
        Err(failure) if failure.kind == Kind::Auth => {}
        Ok(answer) => {
            server.out.note(&format!("The server answered {}; the session may still be there.", answer.status()));
        }
        Err(failure) => server.out.note(&format!("{} The session may still be there.", failure.message)),
    }
    server.out.answer(&json!({ "profile": server.profile, "signedOut": true }), |out| {
        out.line(&format!("Signed out of {} (profile {}).", server.url, server.profile));
    });
    Ok(())
}

pub async fn whoami(server: &Server) -> Result<()> {
    let me = server.get("/auth/me").await?;
    let source = if server.has_own_token() { "JANUA_TOKEN" } else { server.profile.as_str() };
    let file = server.project.file.as_ref().map(|file| file.display().to_string());
    let answer = json!({
        "url": server.url, "profile": source, "user": me, "app": server.project.app, "org": server.project.org,
        "projectFile": file,
    });
    server.out.answer(&answer, |out| {
        out.record(
            &answer,
            &[
                ("Server", "url"),
                ("Profile", "profile"),
                ("Email", "user.email"),
                ("Name", "user.name"),
                ("User ID", "user.id"),
                ("App", "app"),
                ("Organization", "org"),
                ("Folder", "projectFile"),
            ],
        );
    });
    Ok(())
}

#[derive(clap::Args)]
pub struct Use {
    /// The profile for this folder and those below; without it the profiles are listed
    name: Option<String>,
}

/// Binds the folder to a profile, and to the app and organization that are given along.
pub async fn use_profile(server: &Server, wishes: &Use) -> Result<()> {
    let stored = profile::read()?;
    let Some(name) = &wishes.name else {
        let rows: Vec<Value> = stored
            .profiles
            .iter()
            .map(|(name, profile)| {
                json!({ "name": name, "url": profile.url, "email": profile.email, "active": *name == server.profile })
            })
            .collect();
        server.out.answer(&json!({ "profiles": rows }), |out| {
            let columns = [("Profile", "name"), ("Server", "url"), ("Email", "email"), ("In use here", "active")];
            out.table(&columns, &rows, "No profiles yet. Sign in with `janua login`.");
        });
        return Ok(());
    };
    if !stored.profiles.contains_key(name) {
        return Err(Failure::usage(format!("There is no profile {name:?}."))
            .hint(format!("Sign in with `janua login --profile {name}`; `janua use` lists profiles.")));
    }
    let folder = std::env::current_dir()?;
    let here = Project::find(&folder)?;
    let is_here = here.file.as_ref().is_some_and(|file| file.starts_with(folder.join(".janua")));
    let before = if is_here { here } else { Project::default() };
    // Slugs and names change, and a secret key cannot look them up: the IDs are written, and what was given beside them.
    let chosen = Server::open(Options { profile: Some(name.clone()), ..server.options.clone() })?;
    let project = Project {
        profile: Some(name.clone()),
        app: match &server.options.app {
            Some(_) => Some(chosen.app().await?),
            None => before.app,
        },
        org: match &server.options.org {
            Some(_) => Some(chosen.org().await?),
            None => before.org,
        },
        file: None,
    };
    let file = project.save(&folder, server.options.app.as_deref(), server.options.org.as_deref())?;
    let answer = json!({ "profile": name, "app": project.app, "org": project.org, "file": file });
    server.out.answer(&answer, |out| {
        out.line(&format!("This folder uses profile {name}."));
        out.record(&answer, &[("App", "app"), ("Organization", "org"), ("Written to", "file")]);
    });
    Ok(())
}
