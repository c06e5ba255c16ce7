//! `argand completions` and `argand man`: the command line described for shells and for `man`.

use std::io::Write;
use std::iter;
use std::path::PathBuf;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::failure::Failure;
use crate::output::AtomicFile;
use crate::print;

/// Print a script that completes commands and options in a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  source <(argand completions bash)
  argand completions zsh > ~/.zfunc/_argand
  argand completions fish > ~/.config/fish/completions/argand.fish")]
pub(crate) struct CompletionArguments {
    /// The shell to print it for.
    #[arg(value_enum)]
    shell: Shell,
}

/// Write the manual pages to a folder, one per command.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  argand man ~/.local/share/man/man1\n  man argand-plan")]
pub(crate) struct ManualArguments {
    /// An existing folder.
    folder: PathBuf,
}

pub(crate) fn completions(arguments: &CompletionArguments) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut crate::Arguments::command(), "argand", &mut script);
    print(&String::from_utf8_lossy(&script))
}

pub(crate) fn manual(arguments: &ManualArguments) -> Result<(), Failure> {
    let mut command = crate::Arguments::command().disable_help_subcommand(true);
    command.build();
    for page in iter::once(&command).chain(command.get_subcommands()) {
        let manual = clap_mangen::Man::new(page.clone());
        let path = arguments.folder.join(manual.get_filename());
        let mut file = AtomicFile::create(&path)?;
        manual.render(&mut file).and_then(|()| file.flush()).map_err(|error| Failure::io(&path, "write", &error))?;
        file.commit()?;
    }
    Ok(())
}
