"""Word lists of the `mini` corpus, by meaning.

An entry is what is written; `written=spoken words` where the two differ; `_` joins the words of
one entry. `TRAIN` may occur anywhere, `HELD_OUT` only in held-out sentences, `FINANCE` only in the
finance domain. Verbs are given as `base` or `base/past` and yield the slots `NAME_base`,
`NAME_past`, `NAME_ing` and `NAME_s`; nouns yield their plural as `NAMEs`.
"""

from __future__ import annotations

_TRAIN = {
    "first": """
        Adam Agnes Alan Alice Amanda Amelia Andrew Angela Anna Anthony Arthur Barbara Benjamin
        Bernard Beth Brian Bridget Calvin Carla Caroline Cecil Charles Charlotte Chloe Clara
        Claire Colin Connor Cynthia Daniel Daphne David Deborah Dennis Diana Donald Dorothy
        Douglas Edith Edward Eleanor Elliot Emily Emma Eric Esther Ethan Eva Felix Fiona
        Florence Frances Frank Gabriel George Gerald Gloria Gordon Grace Graham Gregory Hannah
        Harold Harriet Harry Hazel Helen Henry Howard Hugo Ian Irene Isaac Isabel Ivan Jack
        Jacob James Jane Janet Jasmine Jason Jeremy Jessica Joan John Jonathan Joseph Joyce
        Judith Julia Justin Karen Keith Kenneth Kevin Laura Lawrence Leo Leonard Lewis Linda
        Louis Lucy Luke Marcus Margaret Maria Martha Martin Matthew Maurice Megan Melissa
        Michael Miriam Monica Nancy Naomi Nathan Neil Nicholas Nina Nora Oliver Olivia Oscar
        Owen Patricia Paul Pauline Peter Philip Phoebe Rachel Ralph Raymond Rebecca Richard
        Robert Roger Rosemary Ruth Samuel Sandra Sarah Sean Simon Sophie Stella Stephen Susan
        Sylvia Teresa Thomas Timothy Tina Victor Victoria Vincent Virginia Walter Wendy William
        Winston Yvonne Zoe""",
    "last": """
        Abbott Adams Allen Anderson Archer Armstrong Atkins Bailey Baker Barker Barnes Barrett
        Bennett Bishop Blackwell Bradley Brewer Briggs Brooks Bryant Burgess Burke Burton Butler
        Campbell Carlson Carpenter Carter Chambers Chandler Chapman Clark Coleman Collins Cooper
        Crawford Cunningham Curtis Dalton Davidson Dawson Dixon Donovan Drake Duncan Eastwood
        Edwards Ellis Emerson Evans Farrell Ferguson Fisher Fleming Fletcher Forbes Foster
        Fowler Franklin Fraser Freeman Gardner Garrison Gibson Gilbert Goodwin Graves Griffin
        Hamilton Hammond Hansen Harding Harper Harrison Hartley Hawkins Hayes Henderson Hobbs
        Holloway Holmes Hopkins Hudson Hughes Hunter Jackson Jefferson Jenkins Johnson Jordan
        Keller Kelly Kennedy Knight Lambert Lawson Lindsay Logan Lowell Marshall Mason Maxwell
        Mercer Miller Mitchell Montgomery Morgan Morris Murphy Nelson Newman Newton Nolan Norris
        Osborne Palmer Parker Patterson Pearson Perkins Porter Powell Preston Quinn Ramsey
        Randall Reynolds Richardson Rivers Robertson Rogers Russell Sanders Saunders Sawyer
        Shelton Shepherd Simmons Simpson Sinclair Slater Spencer Stanton Sterling Stewart Stokes
        Sullivan Sutton Tanner Taylor Thompson Thornton Tucker Turner Underwood Vaughan Wagner
        Walker Wallace Walsh Warren Watkins Watson Weaver Webster Wheeler Whitaker Wilkins
        Williams Wilson Winters Woodward Wright Young""",
    "city": """
        Amsterdam Athens Atlanta Auckland Austin Baltimore Bangkok Barcelona Belfast Berlin
        Birmingham Boston Bristol Brussels Budapest Cairo Calgary Cambridge Canberra Chicago
        Cleveland Cologne Copenhagen Dallas Denver Detroit Dublin Edinburgh Florence Frankfurt
        Geneva Glasgow Hamburg Helsinki Houston Istanbul Jakarta Kansas_City Lagos Leeds Lisbon
        Liverpool London Los_Angeles Madrid Manchester Manila Melbourne Memphis Mexico_City
        Miami Milan Minneapolis Montreal Moscow Munich Nairobi Nashville New_Orleans New_York
        Oakland Orlando Oslo Ottawa Oxford Panama_City Paris Philadelphia Phoenix Pittsburgh
        Portland Prague Quebec Richmond Rome Rotterdam Salem San_Diego San_Francisco Santiago
        Seattle Seoul Sheffield Singapore Stockholm St._Louis=saint_louis
        St._Petersburg=saint_petersburg Sydney Tampa Tokyo Toronto Toledo Tulsa Valencia
        Vancouver Venice Vienna Warsaw Washington Wellington Winnipeg York Zurich""",
    "country": """
        Argentina Australia Austria Belgium Brazil Bulgaria Canada Chile China Colombia Denmark
        Egypt England Estonia Finland France Germany Greece Hungary Iceland India Ireland Italy
        Jamaica Japan Kenya Latvia Malta Mexico Morocco Norway Peru Poland Portugal Romania
        Scotland Spain Sweden Switzerland Thailand Turkey Uganda Vietnam Wales""",
    "job": """
        accountant actor architect artist astronaut author banker barber biologist bookseller
        builder butcher captain carpenter cashier chemist clerk coach comedian composer cook
        dancer dentist designer detective diplomat driver economist editor electrician engineer
        explorer farmer firefighter florist gardener geologist guard guide historian illustrator
        inspector interpreter inventor janitor jeweler journalist judge lawyer lecturer
        librarian lifeguard locksmith magician manager mathematician mechanic merchant musician
        neighbor novelist nurse officer painter pharmacist philosopher photographer physicist
        pianist pilot plumber poet porter potter principal producer professor programmer
        psychologist receptionist referee reporter sailor scientist sculptor secretary senator
        shepherd singer soldier student surgeon surveyor tailor teacher technician tenant
        translator tutor violinist waiter watchmaker welder writer zoologist""",
    "thing": """
        anchor antenna apron arrow axe backpack badge balloon bandage banner barrel basket
        battery bell belt bench bicycle blanket blender bolt book bottle bowl bracelet broom
        bucket button cabinet calculator calendar camera candle canoe cap card carpet cart chain
        chair chest clock coat coin comb compass computer crate crown cup curtain cushion desk
        diary dictionary doll door drawer dress drill drum envelope eraser fan feather fence
        fiddle flag flashlight flute folder fork fountain freezer funnel glove globe goblet
        guitar hammer handbag handkerchief harp hat heater helmet hinge hook hose jacket jar
        jewel jug kettle key kite ladder lamp lantern laptop leash lens letter lock magazine
        magnet map marble mask mattress medal microphone microscope mirror motor mug nail napkin
        necklace needle net newspaper notebook oven package paddle painting pan parcel pen
        pencil penny phone photograph piano pillow pipe pitcher plate pocket postcard poster pot
        printer projector pump puppet purse puzzle quilt racket radio raft rake razor receipt
        ribbon ring robe rocket rope rug ruler saddle sandal saucer saw scale scarf screen screw
        sculpture sheet shield shirt shoe shovel sink skirt sled sock sofa speaker spoon stamp
        statue stool stove string suitcase sweater sword table tape teapot telescope television
        tent thermometer ticket tie tile tool toothbrush torch towel toy tray trumpet trunk
        turbine typewriter umbrella uniform vacuum vase veil violin wagon wallet wardrobe watch
        wheel whistle wig window wire wrench xylophone zipper""",
    "food": """
        apple_pie bacon barley beans beef berries biscuits bread broccoli butter cabbage cake
        carrots celery cereal cheese cherries chicken chocolate cinnamon coconut coffee cookies
        corn crackers cream cucumber curry custard dumplings eggs fish flour garlic ginger
        grapes gravy ham honey ice_cream jam ketchup lamb lemonade lentils lettuce macaroni
        mango marmalade meat melon milk mushrooms mustard noodles nutmeg oatmeal olives onions
        orange_juice oysters pancakes pasta pastry peaches peanuts pears peas pepper pickles
        pineapple pizza plums popcorn pork porridge potatoes pudding pumpkin radishes raisins
        raspberries rice rosemary salad salmon salt sandwiches sardines sausages shrimp soup
        spaghetti spinach steak strawberries sugar sushi syrup tea toast tofu tomatoes tuna
        turkey vanilla vinegar waffles walnuts watermelon yogurt""",
    "animal": """
        alligator antelope badger bat bear beaver bee beetle bison buffalo bull butterfly camel
        cat cheetah chimpanzee cobra cow coyote crab cricket crocodile crow deer dog dolphin
        donkey duck eagle eel elephant falcon ferret flamingo fox frog giraffe goat goose
        gorilla hamster hare hawk hedgehog heron hippo horse jaguar kangaroo kitten koala lion
        lizard llama lobster magpie mole monkey moth mouse mule octopus ostrich otter owl panda
        panther parrot peacock pelican penguin pheasant pig pigeon pony puppy rabbit raccoon rat
        raven rooster scorpion seal shark sheep skunk snail snake sparrow spider squirrel stork
        swan tiger toad tortoise turtle vulture walrus whale wolf wombat zebra""",
    "adj": """
        ancient angry annoying awkward beautiful bitter blunt bold brave brief bright broken
        calm careful charming cheap clean clever clumsy cold colorful comfortable common
        complete convenient cozy cracked crooked curious curved damaged damp dangerous dark
        delicate dirty dull dusty eager elegant empty enormous expensive faded faint familiar
        famous fancy fierce flat foreign fragile fresh friendly funny gentle gigantic gloomy
        gorgeous graceful greasy handsome harmless heavy hollow honest huge humble icy identical
        impressive innocent inexpensive jolly large lazy lonely loose loud lovely lucky massive
        mild modern modest muddy mysterious narrow neat nervous noisy odd old ordinary pale
        patient peculiar plain polite popular powerful precious proud quiet rare remarkable
        round rusty sad secret sensible shabby shallow sharp shiny shy silent silly simple
        sleepy slender slippery small smooth soft sour spare splendid sticky stiff strange
        strong stubborn sturdy superb sweet tall terrible thick thin thoughtful tiny tired tough
        ugly unusual useful valuable warm weak weary weird wet wide wild wise wonderful wooden
        worn young""",
    "adv": """
        abruptly accidentally almost_always angrily anxiously badly barely bravely briefly
        brightly calmly carefully carelessly casually cautiously cheerfully cleverly constantly
        correctly deliberately eagerly easily elegantly eventually exactly faithfully finally
        firmly frequently gently gladly gracefully greedily happily hastily honestly hurriedly
        immediately impatiently instantly kindly lazily loudly mysteriously neatly nervously
        nicely noisily occasionally openly patiently perfectly playfully politely promptly
        properly proudly quickly quietly rapidly rarely reluctantly repeatedly roughly rudely
        sadly safely secretly seldom shyly silently simply skillfully slowly smoothly softly
        solemnly steadily strangely suddenly surprisingly swiftly thoroughly tightly truthfully
        unexpectedly usually warmly wearily wildly wisely""",
    "color": """
        amber beige black blue bronze brown crimson cream gold gray green indigo ivory lavender
        maroon navy olive orange peach pink purple red scarlet silver tan turquoise violet white
        yellow""",
    "material": """
        aluminum bamboo brass brick canvas cardboard ceramic clay concrete copper cotton denim
        glass granite iron lace leather linen marble nylon oak paper pine plaster plastic
        porcelain rubber sandstone silk slate steel stone straw suede tin velvet wax wicker wool""",
    "place": """
        airport aquarium arena bakery ballroom bank barn basement bazaar beach bookstore bridge
        cafe campus canal castle cathedral cave cellar cemetery chapel cinema clinic college
        cottage courthouse courtyard dock embassy factory farm ferry fortress gallery garage
        garden greenhouse gymnasium hallway harbor hospital hotel inn island kitchen laboratory
        lake laundry library lighthouse lobby mall mansion market meadow mill mine monastery
        monument museum nursery office orchard palace park parlor pharmacy pier pond pool prison
        quarry restaurant ranch school shop stable stadium station studio supermarket temple
        theater tower tunnel university valley village vineyard warehouse waterfall workshop zoo""",
    "weather": """
        breezy chilly clear cloudy cool dry foggy freezing frosty hazy hot humid mild misty
        rainy snowy stormy sunny warm windy""",
    "month": """
        January February March April May June July August September October November December""",
    "day": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "relative": """
        aunt boss boyfriend brother cousin daughter father friend girlfriend grandfather
        grandmother husband landlord mother nephew niece partner roommate sister son stepfather
        teammate uncle wife""",
    "instrument": """
        accordion banjo bassoon cello clarinet cymbals flute guitar harmonica harp mandolin oboe
        organ piano saxophone trombone trumpet tuba ukulele violin""",
    "sport": """
        archery badminton baseball basketball boxing chess cricket cycling fencing football golf
        gymnastics handball hockey judo polo rowing rugby skating skiing soccer surfing swimming
        tennis volleyball wrestling""",
    "subject": """
        algebra anatomy archaeology astronomy biology botany chemistry ecology economics
        engineering geography geology geometry grammar history law literature mathematics
        medicine music philosophy physics poetry politics psychology sociology statistics
        theology""",
    "language": """
        Arabic Chinese Czech Danish Dutch English Finnish French German Greek Hebrew Hindi
        Hungarian Italian Japanese Korean Latin Norwegian Polish Portuguese Russian Spanish
        Swedish Turkish Welsh""",
    "body": """
        ankle arm back cheek chin ear elbow eye finger foot forehead hand heel hip jaw knee leg
        neck nose rib shoulder stomach throat thumb toe tooth wrist""",
    "vehicle": """
        ambulance boat bus cab car ferry helicopter jeep limousine motorcycle plane scooter ship
        submarine subway taxi tractor train tram truck van wagon yacht""",
    "topic": """
        accidents allergies banking bridges budgets cathedrals climate democracy diamonds
        divorce earthquakes education elections electricity energy fashion forests fossils
        freedom ghosts glaciers gossip gravity health immigration insects jazz justice kings
        knights loyalty luck mountains mythology oceans patience peace pirates planets plumbing
        pottery poverty robots satellites shipwrecks sleep taxes trade traffic vaccines
        volcanoes war wealth witches""",
    "tree": """
        Ash Birch Cedar Cherry Chestnut Elm Hickory Juniper Laurel Maple Oak Pine Walnut Willow""",
    "road": "Avenue Court Drive Lane Road Square Street Terrace",
    "saint": "Andrew Anthony Bernard Catherine Clement George Helen James Jerome Joseph Margaret",
    "title": "Dr.=doctor Mr.=mister Mrs.=missus Professor Captain Miss Judge Senator Sergeant",
    "unit": "acres bricks gallons inches kilometers meters miles ounces pages pounds tons yards",
    "span": "centuries days decades hours minutes months seconds weeks years",
    "feeling": """
        afraid amazed amused ashamed bored confused delighted disappointed embarrassed excited
        frightened furious grateful guilty hopeful hungry jealous nervous puzzled relieved
        satisfied scared shocked thirsty upset worried""",
    "crop": "barley corn cotton flowers grapes hay herbs oats onions potatoes rice roses rye wheat",
    "said": """
        admitted announced argued believed claimed confirmed denied explained heard insisted knew
        mentioned noticed predicted promised remembered replied reported said suspected thought""",
}

_HELD_OUT = {
    "first": """
        Adrian Alfred Beatrice Cameron Celeste Clifford Cordelia Desmond Dominic Elsa Ferdinand
        Geraldine Gwendolyn Horace Imogen Lydia Malcolm Mildred Natalie Nigel Opal Penelope
        Quentin Rupert Sabrina Sebastian Tabitha Trevor Ursula Vivian Wilfred""",
    "last": """
        Ainsworth Babcock Blanchard Cartwright Castillo Dempsey Eldridge Fairbanks Gallagher
        Goldberg Hathaway Huxley Ingram Jennings Kirkland Langley Lockhart Merriweather
        Nightingale Pemberton Prescott Ridgeway Rosenthal Stratton Templeton Vanderbilt
        Wainwright Whitmore""",
    "city": """
        Albany Bogota Bordeaux Brisbane Caracas Casablanca Cincinnati Dresden Havana Honolulu
        Kingston Krakow Lima Marseille Naples Omaha Perth Sacramento Seville""",
    "job": """
        acrobat apprentice archaeologist blacksmith chauffeur chef conductor courier gambler
        goldsmith landscaper midwife optician sheriff trainer undertaker veterinarian""",
    "thing": """
        abacus armchair bagpipe barometer binder cradle doorknob easel fishbowl hairbrush
        hammock hourglass icebox keyboard lampshade metronome padlock parachute sewing_machine
        skateboard spatula stapler sundial tablecloth telegram trampoline tricycle tripod
        wheelbarrow""",
    "food": """
        almonds apricots asparagus avocado blueberries cauliflower cranberries eggplant figs
        hummus lasagna licorice meatballs molasses omelets paprika pistachios sauerkraut turnips
        zucchini""",
    "animal": """
        aardvark armadillo baboon chipmunk emu gazelle hyena iguana jellyfish leopard lynx
        mongoose moose nightingale piranha porcupine rhinoceros salamander tarantula woodpecker""",
    "adj": """
        absurd bulky crimped cumbersome dazzling dreadful exotic filthy flimsy frantic hideous
        immaculate lavish luminous majestic pathetic quaint ragged sinister spacious tasteless
        vivid""",
    "adv": """
        awkwardly boldly clumsily courteously defiantly drowsily earnestly fiercely foolishly
        generously graciously innocently merrily obediently stubbornly tenderly""",
    "place": """
        amphitheater archway balcony brewery bungalow cabin casino convent crossroads dormitory
        foundry hangar jetty observatory pavilion refinery sawmill shipyard tavern windmill""",
    "topic": "alchemy beekeeping comets espionage hurricanes nutrition parenting piracy slavery",
    "subject": "calculus criminology linguistics metallurgy oceanography",
}

_FINANCE = {
    "company": """
        Altamar Arcadian Axelton Belvoir Bexley Brightwater Calloway Carvex Centaur Corvanta
        Crestline Daxton Delphine Dynastar Eastgate Elmora Equinova Evercrest Fairmont
        Falconridge Finova Garnet Glenmore Granville Halcyon Helix Highmark Inverness Ironbridge
        Jovian Kestrel Keystone Kirova Lanmark Lexicor Lumina Magellan Marivale Meridian Monarch
        Norvex Northgate Novara Oakhurst Omnicore Orion Paragon Pinnacle Polaris Quantor Quillon
        Redwood Regent Rovello Sable Solara Stanfield Summit Tavistock Tessera Titan Trident
        Unison Valora Vantage Verity Westmark Wexford Xenora Zephyr""",
    "firm": """
        Airlines Bancorp Biotech Brands Capital Chemicals Energy Foods Group Holdings Industries
        Insurance Logistics Media Motors Partners Pharmaceuticals Semiconductors Software
        Telecom Trust Ventures""",
    "measure": """
        cash_flow earnings expenses gross_margin inventories liabilities net_income
        operating_profit overhead payroll revenue sales_volume turnover""",
    "rose": "advanced climbed gained improved increased jumped rallied rebounded soared surged",
    "fell": "contracted declined decreased dipped dropped plunged retreated shrank slid slumped",
    "asset": """
        bonds commodities copper_futures crude_oil currencies debentures derivatives equities
        gilts mortgages municipal_debt options real_estate receivables securities swaps
        treasuries warrants""",
    "analyst": "analysts auditors brokers creditors economists investors lenders regulators \
        shareholders strategists traders underwriters",
    "quarter": "first second third fourth",
    "index": "Nasdaq Dow Footsie Nikkei Euronext Russell",
    "event": """
        acquisition bankruptcy buyback default devaluation divestment downgrade flotation
        lawsuit merger restructuring settlement spinoff takeover tender_offer upgrade write_down""",
    "officer": "chairman chief_executive comptroller finance_director treasurer",
    "cause": """
        currency_losses higher_tariffs inflation interest_costs litigation recession
        restructuring_charges speculation stagnation supply_shortages weaker_demand""",
}

_TRAIN_VERBS = {
    # done by a person to a thing
    "vt": """
        abandon/abandoned admire/admired borrow break/broke bring/brought burn bury/buried
        buy/bought carry/carried catch/caught choose/chose clean collect copy/copied cover
        decorate/decorated deliver describe/described design destroy discover donate/donated
        drag+ draw/drew drop+ examine/examined exchange/exchanged fetch find/found fix fold
        forget/forgot grab+ hide/hid hold/held ignore/ignored inspect kick lend/lent lift
        lose/lost measure/measured mend move/moved notice/noticed order paint photograph pick
        polish pull purchase/purchased push receive/received recognize/recognized remove/removed
        rent repair replace/replaced return ruin sell/sold send/sent shake/shook sketch smash
        steal/stole study/studied sweep/swept test throw/threw touch trade/traded unpack
        use/used wash weigh wrap+""",
    "vi": """
        agree/agreed apologize/apologized argue/argued arrive/arrived blush celebrate/celebrated
        complain cough cry/cried dance/danced disappear disagree/disagreed faint fall/fell
        giggle/giggled grumble/grumbled hesitate/hesitated hurry/hurried laugh leave/left listen
        nod+ pause/paused pray rest retire/retired run/ran shiver shout sigh sing/sang sit/sat
        sleep/slept smile/smiled sneeze/sneezed stand/stood stay stumble/stumbled swim/swam
        tremble/trembled vanish wait wake/woke walk wander whisper work yawn yell""",
    "cook": """
        bake/baked boil chop+ cook eat/ate fry/fried grill mash order peel prepare/prepared
        refuse/refused roast serve/served share/shared slice/sliced spill stir+ taste/tasted""",
    "see": "chase/chased draw/drew feed/fed follow hear/heard meet/met photograph rescue/rescued \
        see/saw spot+ trap+ watch",
    "hurt": "break/broke bruise/bruised burn cut/cut/cutting injure/injured scratch sprain twist",
}

_HELD_OUT_VERBS = {
    "vt": """
        assemble/assembled auction confiscate/confiscated dismantle/dismantled engrave/engraved
        hoist misplace/misplaced neglect pawn retrieve/retrieved scrub+ smuggle/smuggled unwrap+
        varnish""",
    "vi": "applaud bow chuckle/chuckled dawdle/dawdled doze/dozed kneel/knelt limp mumble/mumbled \
        scream shrug+ stutter sulk",
}

_PLURALS = {
    "calf": "calves", "deer": "deer", "foot": "feet", "goose": "geese", "mouse": "mice",
    "scarf": "scarves", "sheep": "sheep", "tooth": "teeth", "wolf": "wolves", "hippo": "hippos",
    "kangaroo": "kangaroos", "buffalo": "buffalo", "piano": "pianos", "radio": "radios",
    "bison": "bison", "armadillo": "armadillos", "emu": "emus", "flamingo": "flamingos",
    "moose": "moose", "studio": "studios", "zoo": "zoos",
    "jellyfish": "jellyfish", "stomach": "stomachs",
}  # fmt: skip

Entry = tuple[tuple[str, tuple[str, ...]], ...]


def plural(word: str) -> str:
    """Plural of a noun, also third person of a verb."""
    if word in _PLURALS:
        return _PLURALS[word]
    if word.endswith(("s", "x", "z", "ch", "sh", "o")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def _forms(verb: str) -> dict[str, str]:
    """The four forms of `base`, `base+` (doubles its last letter), `base/past[/ing]`."""
    base, *given = verb.rstrip("+").split("/")
    stem = base + base[-1] if verb.endswith("+") else base
    past = given[0] if given else stem + "ed"
    if base.endswith("e") and not base.endswith("ee"):
        stem = base[:-1]
    elif base in {"run", "sit", "swim", "forget"}:
        stem = base + base[-1]
    ing = given[1] if len(given) > 1 else stem + "ing"
    third = base + "s" if base.endswith("oo") else plural(base)
    return {"base": base, "past": past, "ing": ing, "s": third}


def _entry(text: str) -> Entry:
    """`St._Louis=saint_louis` -> (("St.", ("saint",)), ("Louis", ("louis",)))."""
    written, _, spoken = text.partition("=")
    voices = (spoken or written.lower()).split("_")
    return tuple((w, (s,)) for w, s in zip(written.split("_"), voices, strict=True))


_NOUNS = ("animal", "body", "job", "place", "relative", "thing", "vehicle")


def _lists(nouns: dict[str, str], verbs: dict[str, str]) -> dict[str, list[Entry]]:
    texts = {name: words.split() for name, words in nouns.items()}
    for name in _NOUNS:
        if name in texts:
            texts[name + "s"] = [plural(t) for t in texts[name]]
    for name, words in verbs.items():
        table = [_forms(v) for v in words.split()]
        for form in ("base", "past", "ing", "s"):
            texts[f"{name}_{form}"] = [row[form] for row in table]
    return {name: [_entry(t) for t in entries] for name, entries in texts.items()}


TRAIN = _lists(_TRAIN, _TRAIN_VERBS)
HELD_OUT = _lists(_HELD_OUT, _HELD_OUT_VERBS)
FINANCE = _lists(_FINANCE, {})
