// The verdicts of the last 24 hours as bars, and what held at a moment of them.

const DAY = 86400;
// Hours that the bars may cover.
const SPANS = [24, 6, 1];
// Rows of the picture: one for each cause, those that hold first.
const CAUSES_MAX = 20;

async function askPast() {
  try {
    const { verdicts, remembered_since_unix_seconds: since } = await (await ask('history')).json();
    if (!Array.isArray(verdicts)) throw new Error('the history cannot be read');
    Object.assign(mesh, { past: verdicts, pastSince: since ?? now() - DAY });
    put('past-note', verdicts.length ? 'Remembered since ' : 'No verdict since ', timed(clock(mesh.pastSince), mesh.pastSince), '.');
  } catch ({ message }) {
    put('past-note', `Not known: ${message}.`);
  }
  drawPast();
  showVerdicts();
}

// A beginning that is not known is the last moment of which something is known.
const begin = ({ since_unix_seconds: from, ended_unix_seconds: to }) => from ?? to ?? now();

// The time of day where the reader is, to the minute.
const clock = (unix) => new Date(unix * 1e3).toTimeString().slice(0, 5);
const span = () => (SPANS.includes(+shown.hours) ? +shown.hours : DAY / 3600) * 3600;

// The moment that is shown, in Unix seconds; none if it is now.
function momentShown() {
  const { at } = shown, unix = /^\d+$/.test(at) ? Number(at) : Date.parse(at) / 1e3;
  return Number.isFinite(unix) ? unix : null;
}

function goTo(unix) {
  keep({ at: unix == null ? '' : utc(Math.round(unix)) });
  drawPast();
  showVerdicts();
  redraw();
}

function showPast(then) {
  const held = (mesh.past ?? []).filter((verdict) => begin(verdict) <= then && !(verdict.ended_unix_seconds <= then));
  const isKnown = mesh.past && mesh.pastSince <= then && then <= now();
  $('headline').className = held.length ? 'bad' : '';
  put('headline', !isKnown && !held.length ? 'Nothing is known of that time' : held.length ? `${count(held.length, 'verdict')} held then` : 'No verdict held then');
  put('summary', timed(`${ago(then)}, ${utc(then)}`, then), ...(mesh.past && !isKnown ? [`; the judges remember since ${utc(mesh.pastSince)}`] : []));
  list(held);
}

function drawPast() {
  const end = now(), wide = span(), place = (unix) => limit((unix - end) / wide + 1, 0, 1) * 100, causes = new Map(), then = momentShown();
  for (const verdict of mesh.past ?? []) causes.set(verdict.id, [...(causes.get(verdict.id) ?? []), verdict]);
  const rows = [...causes.values()].filter((of) => of.some(({ ended_unix_seconds: to }) => (to ?? end) > end - wide));
  $('hours').hidden = !causes.size;
  put('hours', ...[1, 0.5, 0].map((part) => make('span', {}, clock(end - part * wide))));
  put('spans', ...SPANS.map((hours) => make('button', { ariaPressed: hours * 3600 === wide, onclick: () => {
    keep({ hours: hours === 24 ? '' : String(hours) });
    drawPast();
  } }, `${hours} h`)));
  $('spans').hidden = !causes.size;
  $('past').style.setProperty('--then', then == null ? '-9px' : place(then) + '%');
  put('past', ...rows.slice(0, CAUSES_MAX).map((of) => {
    const [{ kind, subject }] = of, name = `${KINDS[kind] ?? kind} ${subject === '*' ? '' : arrow(subject)}`;
    const bars = of.map((verdict) => {
      const { ended_unix_seconds: to, unconfirmed, severity } = verdict, from = begin(verdict);
      const title = `${name}, ${utc(from)} to ${to ? utc(to) : 'now'}${unconfirmed ? ', unconfirmed' : ''}: ${sentence(verdict)}`;
      const bar = make('button', { title, className: [severity, to ? 'ended' : '', unconfirmed ? 'unconfirmed' : ''].join(' ') });
      bar.style.cssText = `left:min(${place(from)}%,100% - 5px);width:${place(to ?? end) - place(from)}%`;
      return bar;
    });
    const track = make('span', { className: 'track' }, ...bars);
    track.onclick = ({ clientX, detail, target }) => {
      const { left, width } = track.getBoundingClientRect(), bar = of[bars.indexOf(target)];
      // A key has no place, and shows the beginning.
      goTo(detail || !bar ? end + ((clientX - left) / width - 1) * wide : begin(bar));
    };
    return make('li', {}, make('span', { title: name }, name), track);
  }), ...(rows.length > CAUSES_MAX ? [make('li', {}, `${count(rows.length - CAUSES_MAX, 'further cause')}: kube-canary doctor --history`)] : []));
}

$('now').onclick = () => goTo(null);
setInterval(() => turns.running || showAge(), 1e3);
