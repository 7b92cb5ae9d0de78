//! `janua users`: end users of an app.
use reqwest::Method;
use serde_json::json;

use crate::{
    failure::Result,
    resources::{Most, done, list},
    server::{Server, encoded},
};

#[derive(clap::Subcommand)]
pub enum Users {
    /// List the end users of an app
    List {
        /// Part of an email or a name
        #[arg(long)]
        search: Option<String>,
        #[command(flatten)]
        most: Most,
    },
    /// Show an end user with sessions and activity
    Show { id: String },
    /// Block an end user from the app and end their sessions in it
    Block { id: String },
    /// Let a blocked end user sign in again
    Unblock { id: String },
    /// End the sessions of an end user in the app
    SignOut { id: String },
}

pub async fn run(server: &Server, command: &Users) -> Result<()> {
    let path = format!("/apps/{}/users", server.app().await?);
    match command {
        Users::List { search, most } => {
            let asked = search.as_ref().map(|text| format!("?search={}", encoded(text))).unwrap_or_default();
            let columns = [("ID", "id"), ("Email", "email"), ("Name", "name"), ("Last sign-in", "lastSignInAt")];
            list(
                server,
                &format!("{path}{asked}"),
                "users",
                most,
                &columns,
                "No users have signed in to this app yet.",
            )
            .await
        }
        Users::Show { id } => {
            let user = server.get(&format!("{path}/{}", encoded(id))).await?;
            server.out.answer(&user, |out| {
                out.record(
                    &user,
                    &[
                        ("ID", "id"),
                        ("Email", "email"),
                        ("Verified", "emailVerified"),
                        ("Name", "name"),
                        ("First sign-in", "firstSignInAt"),
                        ("Last sign-in", "lastSignInAt"),
                        ("Blocked", "blockedAt"),
                    ],
                );
                let rows = |name: &str| user[name].as_array().cloned().unwrap_or_default();
                out.line("");
                let columns = [("Session", "device"), ("IP address", "ip"), ("Last seen", "lastSeenAt")];
                out.table(&columns, &rows("sessions"), "No sessions.");
                out.line("");
                out.table(
                    &[("Time", "at"), ("Activity", "type"), ("IP address", "ip")],
                    &rows("activity"),
                    "No activity.",
                );
            });
            Ok(())
        }
        Users::Block { id } | Users::Unblock { id } => {
            let act = if matches!(command, Users::Block { .. }) { "block" } else { "unblock" };
            server.ask(Method::POST, &format!("{path}/{}/{act}", encoded(id)), None).await?;
            done(
                server,
                &json!({ "id": id, "blocked": act == "block" }),
                &format!("The user is {act}ed in this app."),
                &[],
            );
            Ok(())
        }
        Users::SignOut { id } => {
            server.delete(&format!("{path}/{}/sessions", encoded(id))).await?;
            done(server, &json!({ "id": id, "signedOut": true }), "Ended the sessions in this app.", &[]);
            Ok(())
        }
    }
}
