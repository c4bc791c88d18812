//! The terminal: raw mode, the alternate screen, keys and mouse. It is restored in all cases: at the end, after a signal, a panic or a suspension.

use std::io;
use std::io::Stdout;
use std::time::Duration;
use std::time::Instant;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor;
use ratatui::crossterm::event;
use ratatui::crossterm::event::Event;
use ratatui::crossterm::event::KeyCode;
use ratatui::crossterm::event::KeyEvent;
use ratatui::crossterm::event::KeyEventKind;
use ratatui::crossterm::event::KeyModifiers;
use ratatui::crossterm::event::MouseButton;
use ratatui::crossterm::event::MouseEventKind;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal;

use super::Source;
use super::TopOptions;
use super::app::App;
use super::app::Input;
use super::draw;
use crate::signals;

/// Maximum time between two checks for signals.
const SIGNAL_CHECK_EVERY: Duration = Duration::from_millis(200);
/// Number of rows of a page.
const PAGE: i32 = 10;
/// Number of rows of a turn of the mouse wheel.
const WHEEL: i32 = 3;

type Screen = Terminal<CrosstermBackend<Stdout>>;

/// Shows the source until the user, a signal or its options end it. Returns the signal, if any.
///
/// # Errors
/// Standard output is not a terminal, or writing fails.
pub fn run(source: &mut dyn Source, options: &TopOptions) -> io::Result<Option<i32>> {
    signals::catch()?;
    signals::catch_stop()?;
    let mut guard = Guard::enter()?;
    let mut app = App::new(source.machine().clone(), source.label(), source.notes());
    let mut frames = 0_u64;
    let mut next = Instant::now();
    while !app.quit && signals::caught().is_none() {
        if signals::take_stop() {
            guard.suspend()?;
        }
        if Instant::now() >= next {
            next = Instant::now() + options.interval;
            if !app.paused && !app.over {
                match source.next(app.detail()) {
                    Some(frame) => app.update(frame),
                    None => app.over = true,
                }
                frames += 1;
            }
            guard.draw(&mut app, options)?;
            if options.count.is_some_and(|count| frames >= count) {
                break;
            }
        }
        source.idle();
        let pause = next.saturating_duration_since(Instant::now()).min(SIGNAL_CHECK_EVERY);
        if poll(pause)? {
            let before = app.detail();
            handle(&mut app, &mut guard)?;
            if app.detail() != before && !app.over && app.frame.interval.simulated.is_none() {
                next = Instant::now();
            }
            guard.draw(&mut app, options)?;
        }
    }
    drop(guard);
    Ok(signals::caught())
}

/// Whether there is input; a caught signal is not an error.
fn poll(time: Duration) -> io::Result<bool> {
    match event::poll(time) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        other => other,
    }
}

fn handle(app: &mut App, guard: &mut Guard) -> io::Result<()> {
    match event::read()? {
        Event::Key(key) if key.kind != KeyEventKind::Release => {
            if key.modifiers.contains(KeyModifiers::CONTROL) {
                match key.code {
                    KeyCode::Char('c') => app.quit = true,
                    KeyCode::Char('z') => guard.suspend()?,
                    KeyCode::Char('l') => guard.repaint()?,
                    _ => {}
                }
            } else if let Some(input) = input_of(key) {
                app.input(input);
            }
        }
        Event::Mouse(mouse) => match mouse.kind {
            MouseEventKind::Down(MouseButton::Left) => app.input(Input::Click(mouse.column, mouse.row)),
            MouseEventKind::ScrollDown => app.input(Input::Move(WHEEL)),
            MouseEventKind::ScrollUp => app.input(Input::Move(-WHEEL)),
            _ => {}
        },
        _ => {}
    }
    Ok(())
}

fn input_of(key: KeyEvent) -> Option<Input> {
    Some(match key.code {
        KeyCode::Char(c) => Input::Key(c),
        KeyCode::Enter | KeyCode::Right => Input::Enter,
        KeyCode::Esc | KeyCode::Left => Input::Escape,
        KeyCode::Backspace => Input::Backspace,
        KeyCode::Tab => Input::Tab,
        KeyCode::Up => Input::Move(-1),
        KeyCode::Down => Input::Move(1),
        KeyCode::PageUp => Input::Move(-PAGE),
        KeyCode::PageDown => Input::Move(PAGE),
        KeyCode::Home => Input::First,
        KeyCode::End => Input::Last,
        _ => return None,
    })
}

/// The terminal while this program uses it; restored on drop.
struct Guard {
    screen: Screen,
}

impl Guard {
    fn enter() -> io::Result<Guard> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            leave();
            before(panic);
        }));
        take()?;
        match Terminal::new(CrosstermBackend::new(io::stdout())) {
            Ok(screen) => Ok(Guard { screen }),
            Err(error) => {
                leave();
                Err(error)
            }
        }
    }

    fn draw(&mut self, app: &mut App, options: &TopOptions) -> io::Result<()> {
        self.screen.draw(|frame| {
            let area = frame.area();
            draw(app, options.palette, area, frame.buffer_mut());
        })?;
        Ok(())
    }

    /// Restores the terminal, stops the process, and sets the terminal up again when it continues.
    fn suspend(&mut self) -> io::Result<()> {
        leave();
        signals::stop();
        take()?;
        self.repaint()
    }

    /// Redraws everything. (The library's own method would ask the terminal for the cursor's position, and wait for the answer.)
    fn repaint(&mut self) -> io::Result<()> {
        execute!(io::stdout(), terminal::Clear(terminal::ClearType::All))?;
        self.screen = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        Ok(())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        leave();
    }
}

fn take() -> io::Result<()> {
    terminal::enable_raw_mode()?;
    execute!(io::stdout(), terminal::EnterAlternateScreen, event::EnableMouseCapture, cursor::Hide)
}

/// Restores the terminal. Never fails: if one step fails, the others are still done.
fn leave() {
    let _ = execute!(io::stdout(), event::DisableMouseCapture, terminal::LeaveAlternateScreen, cursor::Show);
    let _ = terminal::disable_raw_mode();
}
