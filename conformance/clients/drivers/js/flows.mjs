// What the JavaScript drivers share: where the server is, and how flows are told of.
//
// BASE_URL (ends in /v1), API_KEY and MODEL come from the environment. Each flow is told of by a line of JSON on stdout,
// and at its beginning to the RECORDER, if there is one. With REAL=1 only those flows run that ask nothing of what is said.

export const { BASE_URL, API_KEY, MODEL } = process.env;
/** A model whose context holds 40 words. */
export const TINY = 'tiny';
export const CITY = { name: 'Paris', population: 2102650 };
export const WEATHER = { Paris: '21 degrees in Paris', Oslo: '3 degrees in Oslo' };
/** What the script says once it heard of the weather. */
export const ONE_CITY = 'It is 21 degrees in Paris.';
export const TWO_CITIES = 'It is 21 degrees in Paris and 3 in Oslo.';
export const TOO_LONG = 'This is far too long. '.repeat(40);

/** A client that hangs fails its flow after so many milliseconds. */
const PATIENCE = 90_000;

export function same(got, wanted) {
  const [left, right] = [got, wanted].map(value => JSON.stringify(value));
  if (left !== right) throw new Error(`${right} was expected, but it is ${left}`.slice(0, 600));
}

export function holds(truth, about) {
  if (!truth) throw new Error(about);
}

/** The error that `work` throws. */
export async function thrown(work) {
  try {
    await work();
  } catch (error) {
    return error;
  }
  throw new Error('nothing was thrown');
}

/** Runs flows, each `[group, name, work]`, in their order, and ends the process. */
export async function main(flows) {
  const real = process.env.REAL === '1';
  const only = (process.env.FLOWS ?? '').split(' ').filter(Boolean);
  let failed = 0;
  for (const [group, flow, work] of flows) {
    if ((group === 'real') !== real || (only.length && !only.includes(flow))) continue;
    const started = performance.now();
    let why = '';
    if (process.env.RECORDER) await fetch(`${process.env.RECORDER}/flow/${flow}`, { method: 'POST' });
    try {
      await within(work());
    } catch (error) {
      why = `${error?.name}: ${error?.message}`.slice(0, 800);
      console.error(error);
      failed += 1;
    }
    const seconds = Math.round((performance.now() - started) / 10) / 100;
    console.log(JSON.stringify({ group, flow, passed: !why, why, seconds }));
  }
  process.exit(failed ? 1 : 0);
}

function within(work) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`nothing came of it in ${PATIENCE} ms`)), PATIENCE);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}
