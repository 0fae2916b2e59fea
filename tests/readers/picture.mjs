// node picture.mjs CHROMIUM FOLDER PAGE URL...: what a browser shows of each archive, as PNG files.
import { writeFileSync } from "node:fs";
import { chromium } from "playwright-core";

const [executablePath, folder, page_url, ...urls] = process.argv.slice(2);
const browser = await chromium.launch({
  executablePath,
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run"],
});
const page = await browser.newPage();
page.on("pageerror", (error) => console.error(error));
await page.goto(page_url);
for (const [number, url] of urls.entries()) {
  const picture = await page.evaluate((each) => globalThis.picture(each), url);
  writeFileSync(`${folder}/${number}.png`, Buffer.from(picture.split(",")[1], "base64"));
}
await browser.close();
