/** The cells of a page's table row whose first cell is `name`. */
export function rowOf(page: string, name: string): string[] {
  const line = page.split('\n').find((each) => each.startsWith(`| \`${name}\``));
  if (line === undefined) throw new Error(`there is no row for ${name}`);
  return line
    .split('|')
    .slice(1, -1)
    .map((cell) => cell.trim());
}
