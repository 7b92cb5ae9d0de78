//! `janua members`: members of an organization and invitations.
use reqwest::Method;
use serde_json::json;

use crate::{
    failure::Result,
    resources::{Most, done, list},
    server::{Server, encoded},
};

#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Role {
    Member,
    Admin,
    Owner,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::Admin => "admin",
            Self::Owner => "owner",
        }
    }
}

#[derive(clap::Subcommand)]
pub enum Members {
    /// List the members of an organization
    List {
        #[command(flatten)]
        most: Most,
    },
    /// Invite a user by email
    Invite {
        email: String,
        #[arg(long, value_enum, default_value = "member")]
        role: Role,
    },
    /// List invitations that are not accepted yet
    Invites {
        #[command(flatten)]
        most: Most,
    },
    /// Change a member's role
    Role {
        #[arg(value_name = "USER_ID")]
        user: String,
        #[arg(value_enum)]
        role: Role,
    },
    /// Remove a member
    Remove {
        #[arg(value_name = "USER_ID")]
        user: String,
    },
}

pub async fn run(server: &Server, command: &Members) -> Result<()> {
    let org = format!("/org/{}", server.org().await?);
    match command {
        Members::List { most } => {
            let columns = [("ID", "userId"), ("Email", "email"), ("Name", "name"), ("Role", "role")];
            list(server, &format!("{org}/members"), "members", most, &columns, "No members.").await
        }
        Members::Invite { email, role } => {
            let new = json!({ "email": email, "role": role.name() });
            let invite = server.post(&format!("{org}/members"), new).await?;
            done(server, &invite, &format!("Invited {email} as {}.", role.name()), &[("Expires", "expiresAt")]);
            Ok(())
        }
        Members::Invites { most } => {
            let columns = [("Email", "email"), ("Role", "role"), ("Sent", "sentAt"), ("Expires", "expiresAt")];
            list(server, &format!("{org}/invites"), "invites", most, &columns, "No pending invitations.").await
        }
        Members::Role { user, role } => {
            let path = format!("{org}/members/{}", encoded(user));
            let member = server.ask(Method::PATCH, &path, Some(json!({ "role": role.name() }))).await?;
            done(server, &member, "Changed the role.", &[("Email", "email"), ("Role", "role")]);
            Ok(())
        }
        Members::Remove { user } => {
            server.out.confirm(server.options.yes, &format!("Remove member {user}?"))?;
            server.delete(&format!("{org}/members/{}", encoded(user))).await?;
            done(server, &json!({ "userId": user, "removed": true }), "Removed the member.", &[]);
            Ok(())
        }
    }
}
